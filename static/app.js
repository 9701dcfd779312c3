// Keeps a page fresh, copies, and lets times count. Every page works without it.
"use strict";
(() => {
  const EVERY_MS = 5000;
  const STALE_MS = 3 * EVERY_MS;
  const GIVE_UP_MS = 10000;

  const $ = (id) => document.getElementById(id);
  const regions = () => document.querySelectorAll("[data-live]");
  const announce = (text) => { $("announcer").textContent = text; };

  document.documentElement.classList.add("js");

  // ---- Times -------------------------------------------------------------
  // Counted by the server's clock: its time with the page or poll, and ours since.
  let serverMs = $("as-of") ? Date.parse($("as-of").dateTime) : Date.now();
  let readAtMs = performance.now();
  const nowMs = () => serverMs + performance.now() - readAtMs;

  const UNITS = [[60, 1, "s"], [3600, 60, "min"], [172800, 3600, "h"], [Infinity, 86400, "d"]];

  function words(seconds, kind) {
    const size = Math.abs(seconds);
    const [, step, unit] = UNITS.find(([below]) => size < below);
    const amount = `${Math.floor(size / step)} ${unit}`;
    if (kind === "age") return amount;
    if (size < 1) return "now";
    return seconds > 0 ? `in ${amount}` : `${amount} ago`;
  }

  function tick() {
    for (const time of document.querySelectorAll("time[data-time]")) {
      const text = words((Date.parse(time.dateTime) - nowMs()) / 1000, time.dataset.time);
      if (time.textContent !== text) time.textContent = text;
    }
  }
  setInterval(tick, 1000);

  // ---- Copy --------------------------------------------------------------
  async function write(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // Plain http: no clipboard API.
      const area = document.createElement("textarea");
      area.value = text;
      area.className = "sr";
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  }

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button.copy");
    if (!button) return;
    const text = button.dataset.copy ?? $(button.dataset.copyFrom)?.textContent ?? "";
    const done = await write(text);
    button.focus();
    announce("");
    announce(done ? "Copied" : "Copying failed: select the text and copy it");
    const use = button.querySelector("use");
    if (!done || button.dataset.done) return;
    button.dataset.done = "yes";
    const before = use.getAttribute("href");
    use.setAttribute("href", before.replace(/#.*/, "#done"));
    setTimeout(() => {
      use.setAttribute("href", before);
      delete button.dataset.done;
    }, 1500);
  });

  // ---- Menu --------------------------------------------------------------
  const account = $("account");
  if (account) {
    document.addEventListener("click", (event) => {
      if (!account.contains(event.target)) account.open = false;
    });
    account.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !account.open) return;
      account.open = false;
      account.querySelector("summary").focus();
    });
  }

  // ---- Retries -----------------------------------------------------------
  // The form's own answer to its Preview button, as one types.
  const retries = $("retries");
  if (retries) {
    let waiting = 0;
    let asked = 0;
    const preview = async () => {
      const body = new FormData(retries.form);
      body.set("preview", "1");
      const number = ++asked;
      try {
        const answer = await fetch(retries.form.action, { method: "POST", body });
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const fresh = page.getElementById("preview");
        if (!fresh || number !== asked) return;
        const open = $("ladder")?.open;
        $("preview").replaceChildren(...fresh.childNodes);
        if (open && $("ladder")) $("ladder").open = true;
      } catch {
        // Away: what was shown stays, and saving says what is wrong.
      }
    };
    retries.form.addEventListener("input", (event) => {
      if (!retries.contains(event.target) && event.target.name !== "tenant") return;
      clearTimeout(waiting);
      waiting = setTimeout(preview, 250);
    });
  }

  // A page that answered a form: loading it again must not send the form again.
  const moved = document.querySelector("[data-location]");
  if (moved) history.replaceState(null, "", moved.dataset.location);

  // ---- Fresh regions -----------------------------------------------------
  if (!regions().length || !$("freshness")) return;

  const freshness = $("freshness");
  const toggle = $("poll-toggle");
  const stale = $("stale");
  const held = new Map();
  let tag = $("live-tag").dataset.tag;
  let paused = false;
  let signedOut = false;
  let timer = 0;
  let answeredAtMs = performance.now();

  // What ticks is no change.
  const stripped = (html) => html.replace(/(<time\b[^>]*>)[^<]*/g, "$1");
  const seen = new Map();
  for (const region of regions()) seen.set(region.id, stripped(region.innerHTML));

  function inUse(region) {
    if (region.contains(document.activeElement)) return true;
    const selection = document.getSelection();
    return selection && !selection.isCollapsed && selection.containsNode(region, true);
  }

  function replace(region, fresh) {
    const open = [...region.querySelectorAll("details[open][id]")].map((d) => d.id);
    const shut = [...region.querySelectorAll("details:not([open])[id]")].map((d) => d.id);
    region.replaceChildren(...fresh.cloneNode(true).childNodes);
    for (const id of open) if ($(id)) $(id).open = true;
    for (const id of shut) if ($(id)) $(id).open = false;
    $(`${region.id}-more`)?.remove();
  }

  // Rows that are shown change where they stand; new ones wait behind a button.
  function merge(region, fresh) {
    const shown = [...region.querySelectorAll("tr[id]")];
    if (!shown.length || !fresh.querySelector("tr[id]")) return replace(region, fresh);
    const rows = new Map([...fresh.querySelectorAll("tr[id]")].map((row) => [row.id, row]));
    for (const row of shown) {
      const next = rows.get(row.id);
      row.classList.toggle("gone", !next);
      rows.delete(row.id);
      if (next && stripped(next.innerHTML) !== stripped(row.innerHTML)) {
        row.replaceWith(next.cloneNode(true));
      }
    }
    offer(region, fresh, rows.size);
  }

  function offer(region, fresh, count) {
    const id = `${region.id}-more`;
    let button = $(id);
    if (!count) return button?.remove();
    if (!button) {
      button = document.createElement("button");
      button.type = "button";
      button.id = id;
      button.className = "button more-rows";
      region.before(button);
    }
    button.textContent = `Show ${count} new`;
    button.onclick = () => {
      replace(region, fresh);
      region.querySelector("a")?.focus();
    };
  }

  function apply(region, fresh) {
    if (inUse(region)) {
      held.set(region.id, fresh);
      return;
    }
    held.delete(region.id);
    "rows" in region.dataset ? merge(region, fresh) : replace(region, fresh);
  }

  function take(html) {
    const page = new DOMParser().parseFromString(html, "text/html");
    for (const fresh of page.querySelectorAll("[data-live]")) {
      const region = $(fresh.id);
      const text = stripped(fresh.innerHTML);
      if (!region || seen.get(fresh.id) === text) continue;
      seen.set(fresh.id, text);
      apply(region, fresh);
    }
    tick();
  }

  // What was held is put in place once focus or selection has left.
  function release() {
    for (const [id, fresh] of held) apply($(id), fresh);
    show();
  }
  document.addEventListener("focusout", () => setTimeout(release));
  document.addEventListener("selectionchange", () => held.size && release());

  function show() {
    const silentMs = performance.now() - answeredAtMs;
    const lost = !paused && !document.hidden && silentMs > STALE_MS;
    const state = paused ? "paused" : lost || signedOut ? "stale" : held.size ? "held" : "fresh";
    const text = { paused: "paused at", stale: "last update", held: "held at", fresh: "as of" };
    freshness.dataset.state = state;
    $("freshness-words").textContent = text[state];
    const trouble = signedOut
      ? "You are signed out, so this page is not updated any more. Reload it to sign in."
      : lost ? "The server does not answer. What you see may be out of date; trying again." : "";
    if (stale.textContent !== trouble) stale.textContent = trouble;
    stale.hidden = !trouble;
  }

  function answered(response) {
    answeredAtMs = performance.now();
    const date = Date.parse(response.headers.get("Date") ?? "");
    if (!Number.isNaN(date) && Math.abs(date - nowMs()) > 1500) {
      serverMs = date;
      readAtMs = performance.now();
    }
    const at = new Date(nowMs()).toISOString();
    $("as-of").dateTime = at;
    $("as-of").textContent = `${at.slice(11, 19)} UTC`;
  }

  async function poll() {
    try {
      const response = await fetch(location.href, {
        headers: { "X-Poll": "1", "If-None-Match": `"${tag}"` },
        cache: "no-store",
        signal: AbortSignal.timeout(GIVE_UP_MS),
      });
      signedOut = response.status === 401;
      if (response.status === 200) {
        take(await response.text());
        tag = (response.headers.get("ETag") ?? "").replaceAll('"', "");
      }
      if (response.status === 200 || response.status === 304) answered(response);
    } catch {
      // Away: show() says so once it lasts.
    }
    show();
    schedule();
  }

  function schedule() {
    clearTimeout(timer);
    if (!paused && !signedOut && !document.hidden) timer = setTimeout(poll, EVERY_MS);
  }

  function pause(value) {
    paused = value;
    toggle.setAttribute("aria-pressed", String(paused));
    const label = paused ? "Resume updates" : "Pause updates";
    toggle.title = label;
    toggle.querySelector(".sr").textContent = label;
    clearTimeout(timer);
    paused ? show() : resume();
  }
  function resume() {
    answeredAtMs = performance.now();
    poll();
  }

  toggle.addEventListener("click", () => pause(!paused));

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) clearTimeout(timer);
    else if (!paused && !signedOut) resume();
  });
  setInterval(show, 1000);
  schedule();
})();
