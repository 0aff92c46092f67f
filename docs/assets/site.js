// Tables that scroll sideways can be reached and scrolled with the keyboard; the theme wraps them late.
function reachable() {
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) {
    table.tabIndex = 0;
  }
}
reachable();
new MutationObserver(reachable).observe(document.body, { childList: true, subtree: true });
