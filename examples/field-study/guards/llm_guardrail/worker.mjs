// llm_guardrail with its three models, as its README recommends.
import { createInterface } from "node:readline";
import { checkAll } from "llm_guardrail";

const say = (answer) => process.stdout.write(JSON.stringify(answer) + "\n");
console.log = console.info = console.warn = console.error;
const check = async (text) => ({ blocked: !(await checkAll(text)).allowed });

for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const { id, text } = JSON.parse(line);
  try {
    say({ id, ...(await check(text)) });
  } catch (error) {
    say({ id, error: String(error) });
  }
}
