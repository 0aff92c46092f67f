// leo-profanity at its defaults.
import { createInterface } from "node:readline";
import filter from "leo-profanity";

const say = (answer) => process.stdout.write(JSON.stringify(answer) + "\n");
console.log = console.info = console.warn = console.error;
const check = (text) => ({ blocked: filter.check(text) });

for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const { id, text } = JSON.parse(line);
  try {
    say({ id, ...(await check(text)) });
  } catch (error) {
    say({ id, error: String(error) });
  }
}
