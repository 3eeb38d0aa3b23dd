'use strict';
(() => {
  const one = (selector, under = document) => under.querySelector(selector);
  const all = (selector, under = document) => [...under.querySelectorAll(selector)];
  const tools = one('.tools'), query = one('#q'), count = one('#count');
  const boxes = all('.tools input[type=checkbox]');
  const kind = node => node.className === 'k' ? 'skipped' : ['failed', 'unknown', 'passed', 'skipped', 'other'].find(word => node.classList.contains(word));
  // A test is counted once: as its card where it failed, else as its row; rows of cards only follow.
  const tests = all('details.t, details.r, p.k').map(node => ({node, kind: kind(node), above: one('.key', node.parentElement), text: null}));
  const follow = all('p.r');
  // What else is searched: rows of tables, and logs. Those of plugins belong to their tests.
  const others = all('#nodes tr, .facts tr, #health tr, #left-out tr, details.log').filter(node => node.localName !== 'tr' || one('td', node)).map(node => ({node, text: null}));
  const text = row => row.text ??= (row.node.textContent + ' ' + one('h2, th[scope=row]', row.node.closest('tr.p, section')).textContent +
    ' ' + (!row.node.classList.contains('t') && row.above ? row.above.textContent : '')).toLowerCase();
  const names = one('#names'), panel = one('#node');
  const make = (name, content, under) => { const made = document.createElement(name); made.textContent = content; under.append(made); return made; };
  const offer = (label, under, action) => {
    const button = make('button', label, under);
    button.className = 'copy';
    button.type = 'button';
    button.addEventListener('click', () => action(button));
  };
  // All that the sections say about a node: its results, facts, health and failures.
  const about = name => {
    panel.hidden = !name;
    panel.dataset.name = name;
    panel.replaceChildren();
    if (!name) return;
    make('h3', name, panel);
    const list = make('dl', '', panel);
    const say = (term, content) => { make('dt', term, list); return make('dd', content, list); };
    const place = names ? names.content.textContent.split('\n').indexOf(name) : -1;
    for (const picture of place < 0 ? [] : all('svg.nodes')) {
      const side = picture.viewBox.baseVal.width / picture.dataset.across, square = `M${place % picture.dataset.across * side} ${Math.floor(place / picture.dataset.across) * side}h`;
      const path = all('path', picture).find(path => path.getAttribute('d').includes(square));
      say(picture.getAttribute('aria-label').split(': ')[0], path.getAttribute('class').replace('f-none', 'did not run').replace('f-', ''));
    }
    const rows = selector => {
      for (const table of all(selector)) {
        const [head, ...rows] = table.rows;
        for (const row of rows.filter(row => row.cells[0].textContent === name))
          [...row.cells].slice(1).forEach((cell, at) => say(head.cells[at + 1].textContent, cell.textContent));
      }
    };
    rows('#nodes table');
    for (const test of all('details.t')) {
      const chips = test.nextElementSibling, chip = chips && chips.className === 'chips' ? all('a', chips).find(link => link.textContent === name) : null;
      if (test.dataset.node === name || chip) make('a', one('summary', test).firstChild.textContent, say('Failed', '')).href = chip ? chip.hash : '#' + test.id;
    }
    rows('.facts table, #health table, #left-out table');
    offer('Only this node', panel, () => { query.value = name; filter(); });
    offer('Close', panel, () => { about(''); filter(); });
  };
  // What the page has no room for is only in the archive.
  const missing = Number(tools.dataset.unlisted);
  const unlisted = missing ? ` on this page (${missing.toLocaleString('en')} more in the archive)` : '';
  const filter = () => {
    const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = new Set(boxes.filter(box => box.checked).map(box => box.value));
    const narrowed = words.length > 0 || wanted.size < boxes.length;
    let shown = 0;
    for (const row of tests) {
      const hit = wanted.has(row.kind) && words.every(word => text(row).includes(word));
      row.node.hidden = !hit;
      shown += hit;
    }
    for (const row of follow) {
      const of = document.getElementById(row.dataset.of);
      row.hidden = !of || of.hidden;
    }
    let beside = 0;
    for (const other of others) {
      const hit = words.length === 0 || words.every(word => (other.text ??= other.node.textContent.toLowerCase()).includes(word));
      other.node.hidden = !hit;
      other.node.classList.toggle('found', hit && words.length > 0);
      beside += hit && words.length > 0;
    }
    const visible = node => one('details.t:not([hidden]), .r:not([hidden]), .k:not([hidden]), .found', node);
    for (const group of all('.group, tr.p, details.cause')) group.hidden = narrowed && !visible(group);
    for (const section of all('section')) section.hidden = narrowed && !visible(section);
    for (const list of all('details.all')) if (words.length > 0 && visible(list)) list.open = true;
    for (const cause of all('details.cause')) if (words.length > 0 && !cause.hidden) cause.open = true;
    one('#empty').hidden = !narrowed || all('section').some(section => !section.hidden);
    const off = boxes.filter(box => !box.checked).map(box => box.value).join();
    const seen = panel.hidden ? '' : '&node=' + encodeURIComponent(panel.dataset.name);
    const state = query.value || off || seen ? '#q=' + encodeURIComponent(query.value) + (off && '&off=' + off) + seen : '';
    if (state || location.hash.startsWith('#q=')) history.replaceState(null, '', location.pathname + location.search + state);
    count.textContent = narrowed ? `${shown.toLocaleString('en')} of ${tests.length.toLocaleString('en')} tests` + unlisted + (beside ? `, ${beside.toLocaleString('en')} elsewhere` : '') : '';
  };
  one('#empty button').addEventListener('click', () => { query.value = ''; boxes.forEach(box => { box.checked = true; }); about(''); filter(); });
  query.addEventListener('input', filter);
  boxes.forEach(box => box.addEventListener('change', filter));
  tools.hidden = false;
  // A link into something folded or filtered away shows it.
  const reveal = () => {
    if (location.hash.startsWith('#q=')) {
      const asked = new URLSearchParams(location.hash.slice(1)), off = (asked.get('off') || '').split(',');
      query.value = asked.get('q');
      boxes.forEach(box => { box.checked = !off.includes(box.value); });
      about(asked.get('node') || '');
      return filter();
    }
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let node = target; node; node = node.parentElement) {
      if (node.localName === 'details') node.open = true;
      node.hidden = false;
    }
    if (target) target.scrollIntoView();
  };
  addEventListener('hashchange', reveal);
  reveal();
  // What is open can be linked to.
  const equip = node => {
    if (!node.id || one(':scope > .copy', node)) return;
    const copy = (label, text) => offer(label, node, async button => {
      try { await navigator.clipboard.writeText(text()); button.textContent = 'Copied'; } catch { prompt(label, text()); }
    });
    copy('Copy link', () => location.href.split('#')[0] + '#' + node.id);
    if (node.dataset.rerun) copy('Copy command to run again', () => node.dataset.rerun);
    if (node.classList.contains('cause')) copy('Copy as issue', () => {
      const fence = '`'.repeat(3), trace = one('details.t pre', node), help = one('.remedy', node), message = one('summary > .message', node).textContent;
      return [`## ${one('summary > b', node).textContent}: ${message}`, one('h1').textContent, all('details.t > summary', node).map(test => '* ' + test.textContent).join('\n'),
        trace && fence + '\n' + trace.textContent + '\n' + fence, help && help.textContent, node.dataset.rerun && '`' + node.dataset.rerun + '`'].filter(Boolean).join('\n\n') + '\n';
    });
  };
  all('details[open]').forEach(equip);
  addEventListener('toggle', event => { if (event.target.open) equip(event.target); }, true);
  // The name of the node under the pointer, and its results in every plugin.
  const under = one('#under');
  if (names) {
    const list = names.content.textContent.split('\n');
    const tip = document.createElement('div');
    tip.id = 'tip'; tip.hidden = true;
    document.body.append(tip);
    for (const picture of all('svg.nodes')) {
      const at = event => {
        const box = picture.viewBox.baseVal, point = new DOMPoint(event.clientX, event.clientY).matrixTransform(picture.getScreenCTM().inverse());
        return list[Math.floor(point.y / (box.width / picture.dataset.across)) * picture.dataset.across + Math.floor(point.x / (box.width / picture.dataset.across))];
      };
      picture.addEventListener('pointermove', event => {
        const name = at(event);
        tip.hidden = !name;
        if (name) tip.textContent = under.textContent = name + ': ' + (event.target.getAttribute('class') || '').replace('f-none', 'did not run').replace('f-', '').replace('nodes', '');
        tip.style.left = Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 4) + 'px';
        tip.style.top = event.clientY + 14 + 'px';
      });
      picture.addEventListener('pointerleave', () => { tip.hidden = true; });
      picture.addEventListener('click', event => { if (at(event)) { query.value = at(event); about(at(event)); filter(); panel.scrollIntoView(); } });
    }
  }
  for (const cell of all('.matrix th[scope=row], .facts th[scope=row]')) {
    const name = cell.textContent, button = document.createElement('button');
    button.type = 'button';
    button.className = 'name';
    button.textContent = name;
    button.addEventListener('click', () => { about(name); filter(); panel.scrollIntoView(); });
    cell.replaceChildren(button);
  }
  addEventListener('beforeprint', () => all('details.cause, details.t, .changes details.r').forEach(node => { node.open = true; }));
  addEventListener('keydown', event => {
    if (/^(INPUT|TEXTAREA)$/.test(event.target.tagName)) {
      if (event.key === 'Escape') { query.value = ''; filter(); query.blur(); }
    } else if (event.key === '/') { event.preventDefault(); query.focus(); }
  });
})();
