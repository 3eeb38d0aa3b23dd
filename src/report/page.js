'use strict';
(() => {
  const tools = document.querySelector('.tools');
  const query = document.getElementById('q');
  const count = document.getElementById('count');
  const boxes = [...document.querySelectorAll('.tools input[type=checkbox]')];
  const rows = [...document.querySelectorAll('[data-s]')].map(node => ({node, status: node.dataset.s, text: null}));
  const text = row => row.text ??= (row.node.dataset.n ?? row.node.textContent).toLowerCase();
  const filter = () => {
    const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = new Set(boxes.filter(box => box.checked).map(box => box.value));
    let shown = 0;
    for (const row of rows) {
      const hit = wanted.has(row.status) && words.every(word => text(row).includes(word));
      row.node.hidden = !hit;
      shown += hit && row.node.localName === 'li';
    }
    const narrowed = words.length > 0 || wanted.size < boxes.length;
    count.textContent = narrowed ? shown.toLocaleString('en') + (shown === 1 ? ' test' : ' tests') : '';
    for (const list of document.querySelectorAll('details.all')) {
      if (words.length > 0 && list.querySelector('li:not([hidden])')) list.open = true;
    }
  };
  query.addEventListener('input', filter);
  boxes.forEach(box => box.addEventListener('change', filter));
  tools.hidden = false;
  // A link into something folded unfolds it.
  const reveal = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let node = target; node; node = node.parentElement) {
      if (node.localName === 'details') node.open = true;
    }
    if (target) target.scrollIntoView();
  };
  addEventListener('hashchange', reveal);
  reveal();
  addEventListener('beforeprint', () => document.querySelectorAll('details.t').forEach(node => { node.open = true; }));
  addEventListener('keydown', event => {
    if (event.key === '/' && !/^(INPUT|TEXTAREA)$/.test(event.target.tagName)) { event.preventDefault(); query.focus(); }
  });
})();
