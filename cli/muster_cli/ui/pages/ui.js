// Keeps the page of now: asks for it again and again, and exchanges the parts that have changed. What somebody has
// focused, opened and scrolled stays; a change of the state is said to screen readers.
"use strict";
(() => {
  const interval = 1000 * Number(document.body.dataset.interval);
  const live = document.getElementById("live");
  const said = document.getElementById("said");
  const parts = () => document.querySelectorAll("[data-part]");
  const known = new Map([...parts()].map((part) => [part.id, part.innerHTML]));
  let tag = "";

  const units = [["d", 86400], ["h", 3600], ["m", 60]];
  function ago(seconds) {
    for (const [unit, size] of units) if (seconds >= 2 * size) return `${Math.floor(seconds / size)}${unit} ago`;
    return `${Math.max(0, Math.floor(seconds))}s ago`;
  }

  function tellTimes() {
    for (const time of document.querySelectorAll("time[datetime]")) {
      const text = ago((Date.now() - Date.parse(time.dateTime)) / 1000);
      if (time.textContent !== text) time.textContent = text;
      time.title = time.dateTime;
    }
  }

  function say(text, lost) {
    if (live.textContent !== text) live.textContent = text;
    live.classList.toggle("lost", lost);
  }

  function announce(text) {
    if (text && said.textContent !== text) said.textContent = text;
  }

  // What is the same in the old and the new part: by id, or by where a link leads.
  function twin(part, element) {
    if (element.id) return document.getElementById(element.id);
    if (element.getAttribute("aria-labelledby")) return part.querySelector(`[aria-labelledby="${CSS.escape(element.getAttribute("aria-labelledby"))}"]`);
    if (element.getAttribute("aria-label")) return part.querySelector(`[aria-label="${CSS.escape(element.getAttribute("aria-label"))}"]`);
    if (element.getAttribute("href")) return part.querySelector(`a[href="${CSS.escape(element.getAttribute("href"))}"]`);
    return element.tagName === "SUMMARY" ? part.querySelector("summary") : null;
  }

  function exchange(part, fresh) {
    const held = part.contains(document.activeElement) ? document.activeElement : null;
    const opened = new Map([...part.querySelectorAll("details[id]")].map((each) => [each.id, each.open]));
    const scrolled = [...part.querySelectorAll(".wide")].map((each) => each.scrollLeft);
    part.innerHTML = fresh.innerHTML;
    for (const [id, open] of opened) document.getElementById(id)?.toggleAttribute("open", open);
    part.querySelectorAll(".wide").forEach((each, index) => { each.scrollLeft = scrolled[index] ?? 0; });
    if (held) (twin(part, held) ?? document.getElementById("main")).focus({ preventScroll: true });
    part.classList.remove("changed");
    void part.offsetWidth; // so that the animation begins anew
    part.classList.add("changed");
  }

  function take(text) {
    const page = new DOMParser().parseFromString(text, "text/html");
    const ids = (list) => [...list].map((each) => each.id).join();
    if (ids(page.querySelectorAll("[data-part]")) !== ids(parts())) {
      location.reload(); // another page is there now, such as after an error
      return;
    }
    for (const part of parts()) {
      const fresh = page.getElementById(part.id);
      if (fresh.innerHTML === known.get(part.id)) continue;
      known.set(part.id, fresh.innerHTML);
      exchange(part, fresh);
      if (fresh.dataset.say !== part.dataset.say) announce(fresh.dataset.say);
      if (fresh.dataset.say) part.dataset.say = fresh.dataset.say;
    }
    tellTimes();
  }

  async function look() {
    try {
      const answer = await fetch(location.href, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
      if (answer.ok) {
        take(await answer.text());
        tag = answer.headers.get("ETag") ?? "";
      } else if (answer.status !== 304) {
        const why = { 401: "the login is not known any more; reload", 404: "what it shows is not there any more", 503: "the cluster is not reached" };
        return lost(why[answer.status] ?? `the server says ${answer.status}`);
      }
      say("Live: changes are shown as they come.", false);
    } catch {
      lost("the server of this page does not answer");
    }
  }

  function lost(why) {
    say(`Not live: ${why}. What you see is as it was before.`, true);
    announce(`Not live: ${why}.`);
  }

  async function turn() {
    if (!document.hidden) await look();
    setTimeout(turn, interval);
  }

  document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });
  setInterval(tellTimes, 1000);
  tellTimes();
  say("Live: changes are shown as they come.", false);
  setTimeout(turn, interval);
})();
