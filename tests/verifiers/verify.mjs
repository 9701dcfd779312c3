// Verifies the cases of a JSON file with libraries that others wrote; prints true or false for each.
import { readFileSync } from "node:fs";
import { verify as github } from "@octokit/webhooks-methods";
import { createLocalJWKSet, jwtVerify } from "jose";
import { Webhook as Standard } from "standardwebhooks";
import { Webhook as Svix } from "svix";

const VERIFIERS = {
  standard: ({ secret, headers }, body) => new Standard(secret).verify(body, headers),
  svix: ({ secret, headers }, body) => new Svix(secret).verify(body, headers),
  github: async ({ secret, headers }, body) => {
    if (!(await github(secret, body, headers["x-hub-signature-256"]))) throw new Error("no match");
  },
  jwt: ({ keys, url, headers }) =>
    jwtVerify(headers["webhook-jwt"], createLocalJWKSet(keys), {
      algorithms: ["EdDSA"],
      audience: url,
    }),
};

async function verifies(given) {
  const body = Buffer.from(given.body, "base64").toString();
  try {
    await VERIFIERS[given.verifier](given, body);
    return true;
  } catch {
    return false;
  }
}

const cases = JSON.parse(readFileSync(process.argv[2], "utf8"));
console.log(JSON.stringify(await Promise.all(cases.map(verifies))));
