// bad-words at its defaults.
import { createInterface } from "node:readline";
import { Filter } from "bad-words";

const say = (answer) => process.stdout.write(JSON.stringify(answer) + "\n");
console.log = console.info = console.warn = console.error;
const filter = new Filter();
const check = (text) => ({ blocked: filter.isProfane(text) });

for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const { id, text } = JSON.parse(line);
  try {
    say({ id, ...(await check(text)) });
  } catch (error) {
    say({ id, error: String(error) });
  }
}
