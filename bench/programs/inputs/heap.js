// Node: `data` bytes of objects, maps and strings in the heap and of buffers outside the heap.
'use strict';
const crypto = require('crypto');
const data = Number(process.argv[2]);
let state = 15;
const draw = (below) => (state = (Math.imul(state, 1103515245) + 12345) >>> 0) % below;
const note = (name, text) => console.log(name, crypto.createHash('sha256').update(String(text)).digest('hex').slice(0, 16));

const count = Math.floor(data / 2 / 200);
const people = [];
for (let i = 0; i < count; i++) people.push({ id: i, name: 'n' + draw(count * 4).toString(36), marks: [draw(100), draw(100)] });
const named = new Map();
for (const one of people) named.set(one.name, (named.get(one.name) || 0) + one.marks[0]);
let sum = 0;
for (let i = 0; i < count; i++) sum = (sum * 31 + (named.get(people[draw(count)].name) || 0)) >>> 0;
note('named', named.size + ' ' + sum);
people.sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : a.id - b.id));
note('sorted', people.filter((_, i) => i % 997 === 0).map((one) => one.id).join());
for (let round = 0; round < 3; round++) {
  for (let i = 0; i < count; i += 3) people[draw(count)] = { id: i, name: 'r' + round + i, marks: [i & 127, round] };
}
note('replaced', people.reduce((s, one) => (s * 33 + one.id + one.marks[0]) >>> 0, 7));

const size = 1 << 20;
const buffers = [];
for (let i = 0; i * size < data / 2; i++) {
  const block = Buffer.allocUnsafeSlow(size);
  for (let at = 0; at < size; at += 4) block.writeUInt32LE(Math.imul(i + 1, at ^ 0x5bd1e995) >>> 0, at);
  buffers.push(block);
}
const all = crypto.createHash('sha256');
for (let i = 0; i < 2 * buffers.length; i++) all.update(buffers[draw(buffers.length)]);
console.log('buffers', buffers.length, all.digest('hex').slice(0, 16));
