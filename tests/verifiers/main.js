// Runs the cases of a JSON file through the functions above; prints the verdicts.
async function main() {
  const functions = {
    verify, verifyV1a, verifyGithub, verifyShopify, verifySlack, verifyStripe,
    verifyJwt: async (headers, body, { url, keys }) => {
      const { createLocalJWKSet } = await import("jose");
      return verifyJwt(url, headers, body, createLocalJWKSet(keys));
    },
  };
  const cases = JSON.parse(require("node:fs").readFileSync(process.argv[2], "utf8"));
  const verdicts = [];
  for (const { function: name, headers, body, key } of cases) {
    const camel = name.replace(/_(.)/g, (_, letter) => letter.toUpperCase());
    verdicts.push(await functions[camel](headers, Buffer.from(body, "base64"), key));
  }
  console.log(JSON.stringify(verdicts));
}

main();
