// What scrolls sideways (tables, the recorded terminal) can be reached and scrolled with the keyboard; the theme wraps them late.
const SIDEWAYS = "p:has(> img[src$='demo.svg']), .md-typeset__scrollwrap";
function reachable() {
  for (const each of document.querySelectorAll(SIDEWAYS)) {
    each.tabIndex = 0;
  }
}
reachable();
new MutationObserver(reachable).observe(document.body, { childList: true, subtree: true });
