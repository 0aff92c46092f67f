// Follows running runs: without it the page is right when it is loaded.
(function () {
  "use strict";
  var places = Array.prototype.slice.call(document.querySelectorAll("[data-run]"));
  var pause = 1000;

  // A wide table can be reached and scrolled by keyboard.
  Array.prototype.forEach.call(document.querySelectorAll(".scroll"), function (box) {
    if (box.scrollWidth <= box.clientWidth + 1) return;
    var caption = box.querySelector("caption");
    box.tabIndex = 0;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", (caption ? caption.textContent.trim() : "Table") + ", scrollable");
  });

  // j and k go from row to row, n and p from page to page, / to the first filter.
  document.addEventListener("keydown", function (event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) return;
    var rows = Array.prototype.slice.call(document.querySelectorAll("a.row, .runs .head a"));
    var at = rows.indexOf(document.activeElement);
    var to = null;
    if (event.key === "j") to = rows[Math.min(at + 1, rows.length - 1)];
    if (event.key === "k") to = rows[Math.max(at - 1, 0)];
    if (event.key === "/") to = document.querySelector(".filter input:not([type=hidden]), .filter select");
    if (to) {
      to.focus();
      event.preventDefault();
    }
    var page = { n: "a[rel=next]", p: "a[rel=prev]" }[event.key];
    var link = page && document.querySelector(page);
    if (link) link.click();
  });

  function show(place, found) {
    var bar = place.querySelector("progress");
    bar.max = Math.max(found.planned, 1);
    bar.value = found.stored;
    place.querySelector(".said").textContent =
      found.stored.toLocaleString("en") + " of " + found.planned.toLocaleString("en");
  }

  function ask() {
    var keys = places.map(function (place) {
      return "run=" + encodeURIComponent(place.dataset.run);
    });
    fetch("/progress?" + keys.join("&"), { credentials: "same-origin" })
      .then(function (answer) {
        if (!answer.ok) throw new Error("not answered");
        return answer.json();
      })
      .then(function (found) {
        var ended = places.some(function (place) {
          var now = found[place.dataset.run];
          if (now) show(place, now);
          return !now || now.state !== "running";
        });
        if (ended) window.location.reload();
        else window.setTimeout(ask, pause);
      })
      .catch(function () {
        pause = Math.min(2 * pause, 30000);
        window.setTimeout(ask, pause);
      });
  }

  if (places.length) window.setTimeout(ask, pause);
})();
