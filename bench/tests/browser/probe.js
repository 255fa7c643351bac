const complaints = [];
let marks = 0;
for (const svg of document.querySelectorAll('svg[data-chart]')) {
  const name = svg.dataset.chart;
  const frame = svg.getBoundingClientRect();
  if (!(frame.width > 200 && frame.height > 60)) complaints.push(name + ' has no room');
  for (const mark of svg.querySelectorAll('[data-series],[data-line],[data-bar]')) {
    marks += 1;
    const box = mark.getBBox();
    const style = getComputedStyle(mark);
    const what = name + ': ' + (mark.dataset.series || mark.dataset.line || mark.dataset.bar);
    if (!(box.width > 0 || box.height > 0)) complaints.push(what + ' has no size');
    if (style.fill === 'rgb(0, 0, 0)') complaints.push(what + ' has no colour');
  }
  const texts = [...svg.querySelectorAll('text')].map((text) => [text.textContent, text.getBoundingClientRect()]);
  for (const [text, box] of texts) {
    const inside = box.left >= frame.left - 1 && box.right <= frame.right + 1 && box.bottom <= frame.bottom + 1;
    if (!inside) complaints.push(name + ': ' + text + ' is cut off');
  }
  texts.forEach(([text, box], at) => {
    for (const [other, beside] of texts.slice(at + 1)) {
      const across = Math.min(box.right, beside.right) - Math.max(box.left, beside.left);
      const down = Math.min(box.bottom, beside.bottom) - Math.max(box.top, beside.top);
      if (across > 1 && down > 3) complaints.push(name + ': ' + text + ' over ' + other);
    }
  });
}
const found = document.documentElement.dataset;
found.complaints = complaints.join(';');
found.marks = marks;
found.ground = getComputedStyle(document.body).backgroundColor;
found.requests = performance.getEntriesByType('resource').length;
