// Adds comfort: without it the page still shows everything.
(function () {
  "use strict";
  var all = function (where, what) {
    return Array.prototype.slice.call(where.querySelectorAll(what));
  };

  // A wide table can be reached and scrolled by keyboard.
  // What is folded is not measured, and everything is measured before anything changes.
  function reach(event) {
    var where = event && event.type === "toggle" ? event.target : document;
    var boxes = all(where, ".scroll, .samples pre").filter(function (box) {
      return !box.closest("details:not([open])");
    });
    var widths = boxes.map(function (box) {
      return box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1;
    });
    boxes.forEach(function (box, at) {
      if (!widths[at]) {
        box.removeAttribute("tabindex");
        box.removeAttribute("role");
        box.removeAttribute("aria-label");
        return;
      }
      var caption = box.querySelector("caption");
      box.tabIndex = 0;
      box.setAttribute("role", "group");
      box.setAttribute("aria-label", (caption ? caption.textContent : "Text") + ", scrollable");
    });
  }

  // A link into a folded part unfolds it.
  function unfoldTarget() {
    var box = document.getElementById(decodeURIComponent(window.location.hash.slice(1)));
    var target = box;
    while (box && (box = box.parentElement.closest("details"))) box.open = true;
    if (target) target.scrollIntoView();
  }
  if (window.location.hash) unfoldTarget();
  window.addEventListener("hashchange", unfoldTarget);

  // The contents show where the reader is.
  function follow() {
    var links = {};
    var current = null;
    all(document, "nav a").forEach(function (link) {
      links[link.hash.slice(1)] = link;
    });
    var heads = all(document, "main h2[id]");
    var waiting = false;
    function mark() {
      waiting = false;
      var now = heads[0];
      heads.forEach(function (head) {
        if (head.closest("details:not([open])")) return;
        if (head.getBoundingClientRect().top < window.innerHeight * 0.3) now = head;
      });
      var link = links[now.id];
      if (link === current) return;
      if (current) current.removeAttribute("aria-current");
      current = link;
      link.setAttribute("aria-current", "true");
      var list = link.closest("ul");
      if (list.scrollWidth > list.clientWidth) {
        list.scrollLeft = link.offsetLeft - list.offsetLeft - 16;
      }
    }
    window.addEventListener("scroll", function () {
      if (!waiting) {
        waiting = true;
        window.requestAnimationFrame(mark);
      }
    }, { passive: true });
    mark();
  }

  function folds() {
    var button = document.getElementById("folds");
    var tables = all(document, "details.fold");
    if (!button || !tables.length) return;
    button.hidden = false;
    button.addEventListener("click", function () {
      var open = tables.some(function (table) { return !table.open; });
      tables.forEach(function (table) { table.open = open; });
      button.textContent = open ? "Fold all tables" : "Unfold all tables";
      reach();
    });
  }

  // What one would tell a colleague: the answers and what to do next, without links.
  function summary() {
    var advice = ".s-recommendations > .text, .s-advice > .text, .s-system-advice > .text";
    return all(document, "h1, .sub, .card, .s-gate > h2, " + advice).map(function (part) {
      if (part.tagName !== "UL") return part.innerText.trim().replace(/\s*\n\s*/g, "\n");
      return all(part, "li").map(function (line) {
        return "- " + line.firstChild.textContent.trim();
      }).join("\n");
    }).join("\n\n");
  }

  function copy() {
    var button = document.getElementById("copy");
    if (!button || !navigator.clipboard) return;
    button.hidden = false;
    button.addEventListener("click", function () {
      navigator.clipboard.writeText(summary()).then(function () {
        button.textContent = "Copied";
      }, function () {
        button.textContent = "The browser does not allow copying";
      });
    });
  }

  function browse(box) {
    var form = box.querySelector("form");
    if (!form) return;
    var step = 50;
    var shown = step;
    var kind = "";
    var chips = all(form, "[data-kind]");
    var search = form.querySelector("input");
    var selects = all(form, "select");
    var status = form.querySelector("[role=status]");
    var more = box.querySelector(".more");
    var items = all(box, ".samples > li").map(function (item) {
      return { item: item, tokens: " " + item.dataset.t + " ", text: null };
    });

    function has(entry, token) {
      return entry.tokens.indexOf(" " + token + " ") >= 0;
    }

    function fits(entry, chosen, words) {
      if (kind && !has(entry, kind)) return false;
      for (var i = 0; i < chosen.length; i += 1) {
        if (!has(entry, chosen[i])) return false;
        // "k4" (different) belongs to no single defense.
        if (kind && kind !== "k4" && chosen[i][0] === "d" && !has(entry, kind + chosen[i])) {
          return false;
        }
      }
      if (!words.length) return true;
      if (entry.text === null) entry.text = entry.item.textContent.toLowerCase();
      return words.every(function (word) { return entry.text.indexOf(word) >= 0; });
    }

    function update() {
      var chosen = selects.map(function (each) { return each.value; }).filter(Boolean);
      var words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      var found = 0;
      items.forEach(function (entry) {
        var fit = fits(entry, chosen, words);
        if (fit) found += 1;
        entry.item.hidden = !fit || found > shown;
      });
      var seen = Math.min(found, shown);
      status.textContent = found === 0 ? "No sample fits these filters." :
        "Showing " + seen + " of " + found + (found === 1 ? " sample." : " samples.");
      more.hidden = found <= shown;
      chips.forEach(function (chip) {
        chip.setAttribute("aria-pressed", String(chip.dataset.kind === kind));
      });
    }

    function restart() {
      shown = step;
      update();
    }

    chips.forEach(function (chip) {
      chip.addEventListener("click", function () {
        kind = chip.dataset.kind;
        restart();
      });
    });
    search.addEventListener("input", restart);
    selects.forEach(function (each) { each.addEventListener("change", restart); });
    form.addEventListener("submit", function (event) { event.preventDefault(); });
    form.addEventListener("reset", function () {
      kind = "";
      window.setTimeout(restart, 0);
    });
    more.querySelector("button").addEventListener("click", function () {
      var next = items.filter(function (entry) { return !entry.item.hidden; }).length;
      shown += step;
      update();
      var visible = items.filter(function (entry) { return !entry.item.hidden; });
      if (visible[next]) visible[next].item.querySelector("summary").focus();
    });
    form.hidden = false;
    update();
  }

  reach();
  follow();
  folds();
  copy();
  all(document, ".browser").forEach(browse);
  document.addEventListener("toggle", reach, true);
  window.addEventListener("resize", reach);
})();
