// A receiver of Dragoman's push notifications: it takes each event once, from the server that it expects, and from
// nobody else. Needs Node 20 and nothing else.
//
//     npm install && npm run build
//     node dist/receiver.js --issuer https://agents.example.com --audience https://client.example.com/hook
//
// `Receiver` is the part to paste. What is below it is a small web server that prints events, one a line.

import { createHash, createPublicKey, verify, type JsonWebKey, type KeyObject } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { parseArgs } from "node:util";

/** Seconds by which the server's clock and ours may differ. */
const SKEW = 60;

/** Tasks that are remembered. */
const REMEMBERED = 100_000;

/** Bytes of a notification. */
const LARGEST = 32 * 1024 * 1024;

/** What a signature says. */
export interface Said {
  iss: string;
  aud: string;
  iat: number;
  exp: number;
  jti: string;
  taskId: string;
  configId: string;
  /** STORE.TASK.NUMBER */
  event: string;
  sequence: number;
  request_body_sha256: string;
}

/** A notification that is not to be believed. */
export class Refused extends Error {}

interface PublicKey {
  algorithm: string;
  key: KeyObject;
}

/**
 * The server's public keys. They are fetched again when they are old, since a key may have been withdrawn, and when a
 * signature names one that is not among them, since a new one may have begun to sign; but not at every stranger's word.
 */
export class Keys {
  #fetched = -Infinity;
  #keys = new Map<string, PublicKey>();
  #coming: Promise<void> | undefined;

  constructor(
    private readonly url: string,
    private readonly old = 300,
    private readonly pause = 10,
  ) {}

  /** The key of this name. Throws Refused for one that is not the server's, other errors when the server is away. */
  async find(id: string): Promise<PublicKey> {
    const age = performance.now() / 1000 - this.#fetched;
    if (age > this.old || (!this.#keys.has(id) && age > this.pause)) {
      this.#coming ??= this.#fetch().finally(() => (this.#coming = undefined));
      await this.#coming;
    }
    const found = this.#keys.get(id);
    if (!found) throw new Refused("it is signed with a key that the server does not show");
    return found;
  }

  async #fetch(): Promise<void> {
    const answer = await fetch(this.url, { signal: AbortSignal.timeout(10_000), redirect: "error" });
    if (!answer.ok) throw new Error(`it answered ${answer.status}`);
    const { keys } = (await answer.json()) as { keys: (JsonWebKey & { kid: string; alg: string })[] };
    this.#keys = new Map(
      keys.map((jwk) => [jwk.kid, { algorithm: jwk.alg, key: createPublicKey({ key: jwk, format: "jwk" }) }]),
    );
    this.#fetched = performance.now() / 1000;
  }
}

/** Knows what is genuine, and what is new. */
export class Receiver {
  readonly #used = new Map<string, number>();
  readonly #done = new Map<string, number>();

  /** issuer: the server's public address. audience: our own, as it was registered. */
  constructor(
    private readonly issuer: string,
    private readonly audience: string,
    private readonly keys: Keys,
  ) {}

  /**
   * What a genuine notification's signature says. Throws Refused, and other errors when that cannot be found out now:
   * answer 503 then, and it comes again.
   */
  async check(signature: string, body: Buffer): Promise<Said> {
    const [head, payload, proof, ...more] = signature.split(".");
    if (!head || !payload || !proof || more.length) throw new Refused("it has no signature");
    const header = read<{ alg?: string; kid?: string }>(head);
    const { algorithm, key } = await this.keys.find(String(header.kid));
    if (header.alg !== algorithm) throw new Refused("its signature names another algorithm than its key");
    const signed = Buffer.from(`${head}.${payload}`);
    const bytes = Buffer.from(proof, "base64url");
    const good =
      algorithm === "EdDSA"
        ? verify(null, signed, key, bytes)
        : algorithm === "ES256" && verify("sha256", signed, { key, dsaEncoding: "ieee-p1363" }, bytes);
    if (!good) throw new Refused("its signature is not good");
    const said = read<Said>(payload);
    const now = Date.now() / 1000;
    if (said.iss !== this.issuer) throw new Refused("its signature is of another server");
    if (said.aud !== this.audience) throw new Refused("it is for somebody else");
    if (!(now < said.exp + SKEW && said.iat < now + SKEW)) throw new Refused("its signature has expired");
    if (said.request_body_sha256 !== createHash("sha256").update(body).digest("hex"))
      throw new Refused("its body is not the one that was signed");
    // Every try is signed anew, so the same signature twice is somebody who has listened.
    if (this.#used.has(said.jti)) throw new Refused("this very signature was here already");
    this.#used.set(said.jti, said.exp);
    for (const [jti, expires] of this.#used) {
      if (expires >= now - 2 * SKEW) break;
      this.#used.delete(jti); // refused for its age from now on
    }
    return said;
  }

  /** Whether this event was not taken yet. Events of a task come in order, so the last number is enough. */
  isNew(said: Said): boolean {
    return said.sequence > (this.#done.get(task(said)) ?? 0);
  }

  /** Notes that an event was taken. In earnest: in the database, in the transaction that keeps what it said. */
  done(said: Said): void {
    const key = task(said);
    this.#done.delete(key);
    this.#done.set(key, said.sequence);
    if (this.#done.size > REMEMBERED) for (const oldest of this.#done.keys()) return void this.#done.delete(oldest);
  }
}

/** Which numbers belong together. A store that was restored counts anew, under another name. */
function task(said: Said): string {
  return `${said.configId} ${said.event.slice(0, said.event.lastIndexOf("."))}`;
}

function read<T>(text: string): T {
  try {
    const value: unknown = JSON.parse(Buffer.from(text, "base64url").toString());
    if (typeof value === "object" && value !== null) return value as T;
  } catch {
    // said below
  }
  throw new Refused("its signature cannot be read");
}

// A web server around it ----------------------------------------------------------------------------------------------

/** The body, or undefined for one that is too large. */
async function bodyOf(request: IncomingMessage): Promise<Buffer | undefined> {
  const parts: Buffer[] = [];
  let size = 0;
  for await (const part of request as AsyncIterable<Buffer>) {
    size += part.length;
    if (size > LARGEST) return undefined;
    parts.push(part);
  }
  return Buffer.concat(parts);
}

/** 200 for what is genuine, also for a repeat; 401 for what is not; 503 when that cannot be told now. */
async function take(receiver: Receiver, request: IncomingMessage): Promise<[number, string]> {
  const body = request.method === "POST" ? await bodyOf(request) : undefined;
  if (!body?.length) return [413, `a notification is a POST of 1 to ${LARGEST} bytes`];
  let said: Said;
  try {
    said = await receiver.check(String(request.headers["dragoman-signature"] ?? ""), body);
  } catch (error) {
    return error instanceof Refused ? [401, error.message] : [503, `the server's keys cannot be had: ${error}`];
  }
  if (!receiver.isNew(said)) return [200, "a repeat"];
  const line = { task: said.taskId, sequence: said.sequence, body: JSON.parse(body.toString()) };
  console.log(JSON.stringify(line)); // here goes what is to be done with it; if that fails, answer 500
  receiver.done(said);
  return [200, "taken"];
}

const { values } = parseArgs({
  options: {
    issuer: { type: "string" },
    audience: { type: "string" },
    port: { type: "string", default: "9000" },
    "keys-old": { type: "string", default: "300" },
    "keys-pause": { type: "string", default: "10" },
  },
});
if (!values.issuer) {
  console.error("--issuer: say the server's public address");
  process.exit(2);
}
const issuer = values.issuer;
const server = createServer();
server.listen(Number(values.port), "127.0.0.1", () => {
  const at = `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`;
  const url = `${issuer.replace(/\/$/, "")}/.well-known/jwks.json`;
  const keys = new Keys(url, Number(values["keys-old"]), Number(values["keys-pause"]));
  const receiver = new Receiver(issuer, values.audience ?? at, keys);
  server.on("request", (request: IncomingMessage, response: ServerResponse) => {
    take(receiver, request)
      .catch((error): [number, string] => [500, String(error)])
      .then(([status, text]) => response.writeHead(status, { "Content-Type": "text/plain" }).end(`${text}\n`));
  });
  console.error(`listening at ${at}`);
});
