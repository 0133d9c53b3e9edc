'use strict';
/* Shows the run that stands in the element "run" as JSON. Texts of models and agents reach the page as
 * text nodes alone. What is long is made when it comes into sight. */
(() => {
  const run = JSON.parse(document.getElementById('run').textContent);
  const agents = run.agents;
  const byId = new Map(agents.map((a, i) => [a.id, i]));
  const $ = (id) => document.getElementById(id);
  const CHUNK = 40, FOUND_MAX = 200, HIGHLIGHT_MAX = 60000, FOLD_LINES = 24, FOLD_CHARS = 2500;
  const children = agents.map(() => []);
  const owner = new Map(); /* id of a node -> [agent, index] */
  agents.forEach((a, i) => {
    if (a.parent >= 0) children[a.parent].push(i);
    a.nodes.forEach((n, k) => {
      owner.set(n.id, [i, k]);
      if (n.same) n.code = a.nodes[k - 1].code;
      if (n.echo) n.output = n.content;
    });
  });

  /* ---- making elements ---- */

  function make(tag, className, ...parts) {
    const e = document.createElement(tag);
    if (className) e.className = className;
    e.append(...parts.filter((p) => p !== null && p !== undefined && p !== ''));
    return e;
  }
  function button(className, text, action) {
    const b = make('button', className, text);
    b.type = 'button';
    b.addEventListener('click', action);
    return b;
  }
  /* Controls and marks that turn the direction of writing are shown, not obeyed. */
  function visible(text) {
    return text.replace(/\r\n/g, '\n').replace(
        /[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g, (c) => {
          const n = c.charCodeAt(0);
          return n < 32 ? String.fromCharCode(0x2400 + n) :
                 n === 127 ? '\u2421' : '\u27e8' + n.toString(16).padStart(4, '0') + '\u27e9';
        });
  }
  const oneLine = (text) => visible(text).replace(/\s+/g, ' ').trim();
  function count(n) {
    return n < 1000 ? String(n) : n < 999950 ? (n / 1e3).toFixed(1) + 'k' : (n / 1e6).toFixed(2) + 'M';
  }
  function money(nano) {
    return nano ? '$' + (nano / 1e9).toFixed(nano < 1e10 ? 4 : 2) : '';
  }
  function time(ms) {
    if (ms < 1000) return Math.round(ms) + ' ms';
    if (ms < 60000) return (ms / 1000).toFixed(1) + ' s';
    if (ms < 3600000) return Math.floor(ms / 60000) + 'm ' + Math.floor(ms % 60000 / 1000) + 's';
    return Math.floor(ms / 3600000) + 'h ' + Math.floor(ms % 3600000 / 60000) + 'm';
  }
  const plural = (n, word) => count(n) + ' ' + word + (n === 1 ? '' : 's');

  /* ---- Python ---- */

  const WORDS = new Set(('False None True and as assert async await break class continue def del elif else ' +
    'except finally for from global if import in is lambda nonlocal not or pass raise return try while with ' +
    'yield match case').split(' '));
  const NAMES = new Set(('INPUTS ENV RECOVERED abs all any bool budget bytes dict done enumerate filter float int ' +
    'isinstance launch_subagents len list llm_query llm_query_batched map max min open print range repr ' +
    'reversed round set sorted str sum tuple type zip').split(' '));
  const TOKEN = new RegExp([
    '(#[^\\n]*)',
    '((?:[rRbBuUfF]{0,2})(?:"""(?:\\\\[\\s\\S]|(?!""")[^\\\\])*(?:"""|$)' +
      "|'''(?:\\\\[\\s\\S]|(?!''')[^\\\\])*(?:'''|$)" +
      '|"(?:\\\\[\\s\\S]|[^"\\\\\\n])*"?' + "|'(?:\\\\[\\s\\S]|[^'\\\\\\n])*'?))",
    '(\\b(?:0[xXbBoO][\\da-fA-F_]+|\\d[\\d_]*(?:\\.[\\d_]*)?(?:[eE][+-]?\\d+)?j?)\\b)',
    '(@[A-Za-z_][\\w.]*)',
    '([A-Za-z_\\u0080-\\uffff][\\w\\u0080-\\uffff]*)',
  ].join('|'), 'g');

  function python(code) {
    const out = document.createDocumentFragment();
    if (code.length > HIGHLIGHT_MAX) {
      out.append(code);
      return out;
    }
    let at = 0, before = '';
    for (const m of code.matchAll(TOKEN)) {
      let kind = m[1] ? 'c' : m[2] ? 's' : m[3] ? 'n' : m[4] ? 'd' : '';
      if (m[5]) {
        kind = WORDS.has(m[5]) ? 'w' : before === 'def' || before === 'class' || NAMES.has(m[5]) ? 'd' : '';
        before = m[5];
      }
      if (kind) {
        out.append(code.slice(at, m.index), make('span', kind, m[0]));
        at = m.index + m[0].length;
      }
    }
    out.append(code.slice(at));
    return out;
  }

  /* A reply: prose, and its blocks of code. */
  function reply(text) {
    const out = document.createDocumentFragment();
    const lines = text.split('\n');
    let prose = [], code = null, fence = '';
    const end = () => {
      if (code !== null) out.append(make('pre', 'code', python(code.join('\n'))));
      else if (prose.join('').trim()) out.append(make('pre', 'said', prose.join('\n').trim()));
      prose = [];
      code = null;
    };
    for (const line of lines) {
      const m = /^ {0,3}(`{3,}|~{3,})(.*)$/.exec(line);
      if (m && code === null && !(m[1][0] === '`' && m[2].includes('`'))) {
        end();
        code = [];
        fence = m[1];
      } else if (m && code !== null && m[1].startsWith(fence) && !m[2].trim()) {
        end();
      } else {
        (code === null ? prose : code).push(line);
      }
    }
    end();
    return out;
  }

  /* ---- texts ---- */

  /* Folds what is long. */
  function fold(part, text, open) {
    let lines = 0;
    for (let i = text.indexOf('\n'); i >= 0 && lines <= FOLD_LINES; i = text.indexOf('\n', i + 1)) lines++;
    if (open || (lines <= FOLD_LINES && text.length <= FOLD_CHARS)) return part;
    const inner = make('div', 'folded', ...part.childNodes);
    part.append(inner, button('more', 'Show all of it', (e) => {
      inner.classList.toggle('folded');
      e.target.textContent = inner.classList.contains('folded') ? 'Show all of it' : 'Show less';
    }));
    return part;
  }
  function part(label, text, kind, open) {
    const shown = visible(text);
    const body = kind === 'reply' ? reply(shown) :
                 make('pre', kind === 'code' || kind === 'said' || kind === 'gate' ? kind : '',
                      kind === 'code' ? python(shown) : shown);
    return fold(make('div', 'part', label && make('div', 'label', label), body), shown, open);
  }

  /* ---- nodes ---- */

  const TITLES = {
    user_query: 'Task', llm_output: 'Reply', exec_action: 'Code', exec_output: 'Output',
    supervising_output: 'Waits for sub-agents', resume_action: 'Sub-agents ended', error_output: 'Error',
    done_output: 'End',
  };

  /* What the metadata of a reply that came in order say. */
  const USUAL = /^\{"finish_reason": ?"(stop|end_turn)"\}$/;

  function links(ids) {
    return make('div', 'links', ...ids.map((id) =>
      byId.has(id) ? button('link', id, () => show(byId.get(id))) : id));
  }
  function fillNode(box, a, k, open) {
    const n = agents[a].nodes[k], previous = agents[a].nodes[k - 1];
    const head = make('h3', '', TITLES[n.type] || n.type);
    if (n.turn) head.append(make('span', 'plain', 'turn ' + n.turn));
    if (n.error) head.append(make('span', 'wrong', n.error));
    if (n.reason) head.append(make('span', n.reason === 'answered' ? 'state-answered' : 'wrong', n.reason));
    const side = [];
    if (n.model) side.push(n.model);
    if (n.usage) {
      side.push(count(n.usage[1]) + ' in, ' + count(n.usage[3]) + ' out' + (n.usage[5] ? ' (estimate)' : ''));
      if (n.usage[4]) side.push(money(n.usage[4]));
    }
    side.push('+' + time(n.at));
    head.append(make('span', 'side', side.join(' \u00b7 ')));
    head.title = n.id + '  ' + new Date(n.t / 1000).toISOString();
    if (n.resumed !== undefined) {
      box.append(make('p', 'resumed', 'The run was stopped before this, and went on ' + time(n.resumed) + ' later'));
    }
    box.append(head);
    if (n.type === 'llm_output') {
      box.append(part('', n.content || '', 'reply', open));
      if (n.code && !(n.content || '').includes(n.code.trimEnd())) {
        box.append(part('code of it that is run', n.code, 'code', open));
      }
    } else if (n.type === 'exec_action') {
      if (n.same && previous.type === 'llm_output') {
        box.classList.add('slim');
        head.insertBefore(make('span', 'plain', 'of the reply above, as it stands'), head.lastChild);
      } else if (n.code) {
        box.append(part('', n.code, 'code', open));
      } else {
        head.insertBefore(make('span', 'plain', 'none: nothing was run'), head.lastChild);
      }
    } else {
      if (n.content) box.append(part('', n.content, n.type === 'user_query' ? 'said' : '', open));
      if (n.code) box.append(part('code', n.code, 'code', open));
      if (n.output && !n.echo && !(n.content || '').includes(n.output.trimEnd())) {
        box.append(part('printed', n.output, '', open));
      }
    }
    if (n.agents) box.append(make('div', 'part', links(n.agents)));
    if (n.result) box.append(part('answer', n.result, 'said', open));
    if (n.gates) {
      box.append(part('', n.gates.map((g) => g[0].toUpperCase() + g.slice(1)).join('\n'), 'gate', open));
    }
    if (n.meta && !USUAL.test(n.meta)) {
      box.append(make('details', 'part', make('summary', 'label', 'metadata'), make('pre', '', visible(n.meta))));
    }
    if (box.childNodes.length === 1) box.classList.add('slim');
  }
  function makeNode(a, k, open) {
    const box = make('article', 'node');
    box.tabIndex = 0;
    box.dataset.id = agents[a].nodes[k].id;
    fillNode(box, a, k, open);
    return box;
  }

  /* ---- timelines ---- */

  const KINDS = run.kinds;
  const ALWAYS = ['model', 'code', 'waiting'];

  function draw(canvas) {
    const width = canvas.clientWidth, height = canvas.clientHeight, ratio = window.devicePixelRatio || 1;
    if (!width) return;
    const style = getComputedStyle(document.documentElement);
    const colors = KINDS.map((kind) => style.getPropertyValue('--t-' + kind).trim());
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const c = canvas.getContext('2d'), scale = canvas.width / (run.total_ms || 1);
    for (const [kind, from, to] of agents[Number(canvas.dataset.agent)].spans) {
      c.fillStyle = colors[kind];
      c.fillRect(from * scale, 0, Math.max((to - from) * scale, ratio), canvas.height);
    }
    c.fillStyle = style.getPropertyValue('--bad').trim();
    for (const [at] of run.stops) c.fillRect(at * scale - ratio, 0, 2 * ratio, canvas.height);
  }
  const there = KINDS.map((_, i) => agents.some((a) => a.spans.some((s) => s[0] === i)));
  const drawn = new Set();
  const seen = new IntersectionObserver((entries) => {
    for (const e of entries) {
      if (e.isIntersecting) {
        seen.unobserve(e.target);
        drawn.add(e.target);
        draw(e.target);
      }
    }
  });
  function redraw() {
    for (const c of drawn) c.isConnected ? draw(c) : drawn.delete(c);
  }
  function sums(a) {
    const sum = KINDS.map(() => 0);
    for (const [kind, from, to] of agents[a].spans) sum[kind] += to - from;
    return sum;
  }
  function bar(a) {
    const canvas = make('canvas');
    canvas.dataset.agent = a;
    canvas.setAttribute('role', 'img');
    canvas.setAttribute('aria-label', sums(a).map((ms, i) => KINDS[i] + ' ' + time(ms)).join(', '));
    seen.observe(canvas);
    return canvas;
  }
  function legend(a) {
    const sum = a === null ? null : sums(a);
    return make('p', 'legend', ...KINDS.map((kind, i) =>
      !ALWAYS.includes(kind) && !(sum ? sum[i] : there[i]) ? null :
        make('span', '', make('i', kind), kind + (sum ? ' ' + time(sum[i]) : ''))));
  }

  /* ---- the tree ---- */

  const closed = new Set();
  let rows = [], focused = 0, selected = 0;

  function isShown(a) {
    for (let p = agents[a].parent; p >= 0; p = agents[p].parent) if (closed.has(p)) return false;
    return true;
  }
  function isBad(a) {
    return agents[a].state !== 'answered' && agents[a].state !== 'unfinished';
  }
  function stateOf(a) {
    const state = agents[a].state;
    return make('span', state === 'answered' ? 'state-answered' : isBad(a) ? 'state-bad' : '', state);
  }
  function makeRow(a) {
    const g = agents[a], open = !closed.has(a), total = g.usage;
    const foldMark = make('span', 'fold', children[a].length ? (open ? '\u25be' : '\u25b8') : '');
    foldMark.addEventListener('click', (e) => {
      if (!children[a].length) return;
      e.stopPropagation();
      toggle(a);
    });
    const dot = make('span', 'dot' + (isBad(a) ? ' bad' : g.state === 'answered' ? '' : ' open'));
    const who = make('span', 'who', foldMark, dot, make('span', 'name', g.name),
                     g.state === 'answered' ? null : make('span', isBad(a) ? 'why wrong' : 'why', g.state));
    who.style.paddingLeft = Math.min(g.depth, 12) * 14 + 'px';
    const row = make('div', 'row', who, make('span', 'number', String(g.turns)),
                     make('span', 'number tokens', count(total[1] + total[3])),
                     make('span', 'number', money(total[4]) || '\u2013'));
    row.setAttribute('role', 'treeitem');
    row.setAttribute('aria-level', g.depth + 1);
    row.setAttribute('aria-label', g.name + ', ' + g.state + ', ' + plural(g.turns, 'turn'));
    if (children[a].length) row.setAttribute('aria-expanded', String(open));
    row.title = g.id + '\n' + oneLine(g.query).slice(0, 300);
    row.dataset.agent = a;
    row.addEventListener('click', () => show(a));
    return row;
  }
  function layTree() {
    const there = $('tree').contains(document.activeElement);
    rows = agents.map((_, a) => a).filter(isShown);
    $('tree').replaceChildren(...rows.map(makeRow));
    markTree();
    if (there) rowOf(focused)?.focus();
  }
  function rowOf(a) {
    return $('tree').children[rows.indexOf(a)];
  }
  function markTree() {
    for (const row of $('tree').children) {
      const a = Number(row.dataset.agent);
      row.setAttribute('aria-selected', String(a === selected));
      row.tabIndex = a === focused ? 0 : -1;
    }
  }
  function toggle(a) {
    closed.has(a) ? closed.delete(a) : closed.add(a);
    if (!isShown(focused)) focused = a;
    layTree();
    rowOf(focused)?.focus();
  }
  function focusRow(a) {
    if (a === undefined) return;
    focused = a;
    markTree();
    rowOf(a).focus();
  }
  $('tree').addEventListener('keydown', (e) => {
    const at = rows.indexOf(focused), open = !closed.has(focused), has = children[focused].length > 0;
    const above = agents[focused].parent;
    const actions = {
      ArrowDown: () => focusRow(rows[at + 1]),
      ArrowUp: () => focusRow(rows[at - 1]),
      Home: () => focusRow(rows[0]),
      End: () => focusRow(rows[rows.length - 1]),
      ArrowRight: () => !has ? 0 : open ? focusRow(children[focused][0]) : toggle(focused),
      ArrowLeft: () => has && open ? toggle(focused) : above >= 0 && focusRow(above),
      Enter: () => show(focused),
      ' ': () => show(focused),
    };
    if (actions[e.key] && !e.ctrlKey && !e.metaKey && !e.altKey) {
      e.preventDefault();
      actions[e.key]();
    }
  });

  /* ---- views ---- */

  const TABS = ['nodes', 'time', 'found'];
  let tab = 'nodes', more = null;

  function setTab(name, content) {
    tab = name;
    for (const t of TABS) {
      $('tab-' + t).setAttribute('aria-selected', String(t === name));
      $('tab-' + t).tabIndex = t === name ? 0 : -1;
    }
    $('view').setAttribute('aria-labelledby', 'tab-' + name);
    if (more) more.disconnect();
    more = null;
    $('view').replaceChildren(content);
    $('view').scrollTop = 0;
  }

  /* Adds nodes from `k` on as the end of the list comes into sight. */
  function listNodes(a, first, hit) {
    const list = make('div', 'nodes'), end = make('div', 'empty'), nodes = agents[a].nodes;
    let next = first;
    const add = () => {
      const last = Math.min(next + CHUNK, nodes.length);
      for (; next < last; next++) list.insertBefore(makeNode(a, next, next === hit), end);
      end.textContent = next < nodes.length ? 'More comes below' : '';
      if (next >= nodes.length && more) more.disconnect();
    };
    if (first > 0) {
      list.append(button('link', 'Show the ' + plural(first, 'node') + ' before these', () => show(a)));
    }
    list.append(end);
    more = new IntersectionObserver((entries) => {
      if (entries.some((e) => e.isIntersecting)) {
        add();
        /* It reports changes alone: the end may be in sight still. */
        more?.unobserve(end);
        if (next < nodes.length) more?.observe(end);
      }
    }, {rootMargin: '800px'});
    add();
    if (next < nodes.length) more.observe(end);
    return list;
  }
  function show(a, k) {
    const g = agents[a];
    selected = focused = a;
    for (let p = g.parent; p >= 0; p = agents[p].parent) closed.delete(p);
    layTree();
    rowOf(a).scrollIntoView({block: 'nearest'});
    const facts = [plural(g.turns, 'turn')];
    if (g.usage[0]) {
      facts.push(plural(g.usage[0], 'model call'), count(g.usage[1]) + ' tokens in', count(g.usage[3]) + ' out');
    }
    if (g.usage[4]) facts.push(money(g.usage[4]));
    facts.push('model ' + g.model);
    const box = make('div', 'agent', make('h2', '', g.id),
      make('p', 'facts', stateOf(a), ...facts.map((f) => make('span', '', f))),
      make('div', 'bar', bar(a)), legend(a));
    if (children[a].length) {
      box.append(make('p', 'facts', plural(children[a].length, 'sub-agent')));
    }
    setTab('nodes', box);
    box.append(listNodes(a, k > CHUNK ? k - 5 : 0, k));
    history.replaceState(null, '', '#' + encodeURIComponent(g.id) + (k >= 0 ? '/' + g.nodes[k].id : ''));
    if (k >= 0) {
      const hit = box.querySelector('[data-id="' + g.nodes[k].id + '"]');
      hit?.classList.add('hit');
      hit?.scrollIntoView({block: 'center'});
      hit?.focus({preventScroll: true});
    }
  }
  function showTimes() {
    const axis = make('span', 'axis',
      ...[0, 0.25, 0.5, 0.75, 1].map((part) => make('span', '', time(run.total_ms * part))));
    const list = make('div', 'times');
    for (let a = 0; a < agents.length; a++) {
      const s = agents[a].spans, row = button('span', '', () => show(a));
      const name = make('span', 'name', agents[a].name);
      name.style.paddingLeft = Math.min(agents[a].depth, 8) * 10 + 'px';
      row.append(name, bar(a), make('span', 'number', s.length ? time(s[s.length - 1][2] - s[0][1]) : ''));
      row.title = agents[a].id;
      list.append(row);
    }
    const stops = run.stops.map(([at, gap]) => 'The run was stopped: its last step was at ' + time(at) +
      ', and it went on ' + time(gap) + ' later. The time between is left out.').join('\n');
    const box = make('div', '', legend(null), stops && make('p', 'note', stops));
    list.prepend(make('div', 'scale', make('span'), axis, make('span')));
    box.append(list);
    setTab('time', box);
  }

  /* ---- search ---- */

  let found = null, searching = 0;
  const FIELDS = ['content', 'code', 'output', 'result', 'error', 'reason', 'meta', 'gates'];

  function pattern(text) {
    return new RegExp(text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'), 'iu');
  }
  function look(n, re) {
    for (const field of FIELDS) {
      if (!n[field] || (field === 'code' && n.same) || (field === 'output' && n.echo)) continue;
      const text = String(n[field]), m = re.exec(text);
      if (m) return {text, at: m.index, length: m[0].length};
    }
    return null;
  }
  function hitButton(a, k, m) {
    const n = agents[a].nodes[k];
    const before = oneLine(' ' + m.text.slice(Math.max(0, m.at - 60), m.at) + '|').slice(0, -1);
    const after = m.text.slice(m.at + m.length, m.at + m.length + 140);
    const b = button('', '', () => show(a, k));
    b.append(make('span', 'place', agents[a].id + ' \u00b7 ' + (TITLES[n.type] || n.type) + ' \u00b7 #' + k),
             make('span', 'text', before, make('mark', '', visible(m.text.slice(m.at, m.at + m.length))),
                  visible(after).replace(/\s+/g, ' ')));
    return b;
  }
  function showFound() {
    const f = found, box = make('div', 'found');
    const more = f.total > f.hits.length ? ', the first ' + f.hits.length + ' of them shown' : '';
    box.append(make('p', 'facts', f.total ? 'In ' + plural(f.total, 'node') + more : 'Found nowhere'));
    for (const [a, k, m] of f.hits) box.append(hitButton(a, k, m));
    $('tab-found').hidden = false;
    $('tab-found').textContent = 'Found (' + f.total + ')';
    setTab('found', box);
  }
  /* In slices, so that the page stays alive with many megabytes of text. */
  async function search(text) {
    const mine = ++searching;
    if (!text) {
      $('tab-found').hidden = true;
      if (tab === 'found') show(selected);
      found = null;
      return;
    }
    const f = {hits: [], total: 0}, re = pattern(text);
    let looked = performance.now();
    for (let a = 0; a < agents.length; a++) {
      for (let k = 0; k < agents[a].nodes.length; k++) {
        const m = look(agents[a].nodes[k], re);
        if (m) {
          f.total++;
          if (f.hits.length < FOUND_MAX) f.hits.push([a, k, m]);
        }
        if (performance.now() - looked > 30) {
          await new Promise((go) => setTimeout(go));
          if (mine !== searching) return;
          looked = performance.now();
        }
      }
    }
    found = f;
    showFound();
  }
  let typing = 0;
  $('search').addEventListener('input', () => {
    clearTimeout(typing);
    typing = setTimeout(() => search($('search').value), 120);
  });
  $('search').addEventListener('keydown', (e) => {
    if (e.key === 'Enter') {
      clearTimeout(typing);
      search($('search').value);
    } else if (e.key === 'Escape') {
      $('search').value = '';
      search('');
      $('search').blur();
    } else if (e.key === 'ArrowDown' && tab === 'found') {
      e.preventDefault();
      document.querySelector('.found button')?.focus();
    }
  });

  /* ---- keys, tabs, theme ---- */

  function step(by) {
    const list = tab === 'found' ? '.found button' : tab === 'time' ? '.times .span' : '.node';
    const all = [...document.querySelectorAll(list)];
    const at = all.indexOf(document.activeElement.closest?.(list));
    const next = all[at < 0 ? 0 : Math.min(Math.max(at + by, 0), all.length - 1)];
    next?.focus({preventScroll: true});
    next?.scrollIntoView({block: 'nearest'});
  }
  document.addEventListener('keydown', (e) => {
    if (e.target === $('search') || e.ctrlKey || e.metaKey || e.altKey) return;
    const action = {'/': () => $('search').focus(), j: () => step(1), k: () => step(-1),
                    t: showTimes, n: () => show(selected), f: () => found && showFound()}[e.key];
    if (action) {
      e.preventDefault();
      action();
    }
  });
  const opens = {nodes: () => show(selected), time: showTimes, found: showFound};
  for (const t of TABS) {
    $('tab-' + t).addEventListener('click', opens[t]);
    $('tab-' + t).addEventListener('keydown', (e) => {
      const by = e.key === 'ArrowRight' ? 1 : e.key === 'ArrowLeft' ? -1 : 0;
      const there = TABS.filter((x) => !$('tab-' + x).hidden);
      const next = there[there.indexOf(t) + by];
      if (by && next) {
        opens[next]();
        $('tab-' + next).focus();
      }
    });
  }
  const dark = matchMedia('(prefers-color-scheme: dark)');
  function setTheme(name) {
    document.documentElement.dataset.theme = name;
    $('theme').textContent = name === 'dark' ? 'Light' : 'Dark';
    $('theme').setAttribute('aria-label', 'Switch to ' + (name === 'dark' ? 'light' : 'dark') + ' colours');
    redraw();
  }
  $('theme').addEventListener('click', () =>
    setTheme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark'));
  dark.addEventListener('change', () => setTheme(dark.matches ? 'dark' : 'light'));
  addEventListener('resize', redraw);

  /* ---- the head ---- */

  const total = run.usage;
  $('title').textContent = oneLine(agents[0].query).slice(0, 400) || 'A run';
  $('title').title = visible(agents[0].query).slice(0, 2000);
  const facts = [plural(agents.length, 'agent'), plural(owner.size, 'node'), plural(total[0], 'model call'),
                 count(total[1]) + ' tokens in, ' + count(total[3]) + ' out', money(total[4]), time(run.total_ms)];
  if (run.stops.length) {
    facts.push('stopped and resumed ' + (run.stops.length === 1 ? 'once' : run.stops.length + ' times'));
  }
  $('facts').append(stateOf(0), ...facts.filter(Boolean).map((f) => make('span', '', f)));
  const cut = run.cut && plural(run.cut, 'long text') +
    ' cut in the middle here: rlmflow view --node shows all of it.';
  const notes = [run.note, cut].filter(Boolean);
  $('note').hidden = !notes.length;
  $('note').textContent = visible(notes.join('\n'));
  setTheme(dark.matches ? 'dark' : 'light');
  function fromAddress() {
    let id = '', node = '';
    try {
      [id, node] = location.hash.slice(1).split('/').map(decodeURIComponent);
    } catch { /* an address that somebody made up */ }
    const place = owner.get(node);
    place ? show(...place) : show(byId.get(id) ?? 0);
  }
  addEventListener('hashchange', fromAddress);
  fromAddress();
})();
