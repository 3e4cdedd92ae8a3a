// Receiver of Dragoman's push notifications: accepts each event once, and only from the expected server. Needs only
// Node 20.
//
//     npm install && npm run build
//     node dist/receiver.js --issuer https://agents.example.com --audience https://client.example.com/hook
//
// Copy `Receiver`. The rest is a small web server that prints events, one per line.

import { createHash, createPublicKey, verify, type JsonWebKey, type KeyObject } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { parseArgs } from "node:util";

/** Permitted difference of the server's clock and ours, in seconds. */
const SKEW = 60;

/** Number of tasks whose last event is remembered. */
const REMEMBERED = 100_000;

/** Maximum bytes of a notification. */
const MAX_BODY_BYTES = 32 * 1024 * 1024;

/** Claims of a signature. */
export interface Claims {
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

/** The notification is not genuine. */
export class Rejected extends Error {}

interface PublicKey {
  algorithm: string;
  key: KeyObject;
}

/**
 * The server's public keys. They are fetched again when they are old, since a key may have been withdrawn, and for an
 * unknown key id, since a new key may be in use. The latter is rate-limited, since anyone can send key ids.
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

  /** Returns the key with this id. Throws Rejected for an unknown id, other errors if the server is unavailable. */
  async find(id: string): Promise<PublicKey> {
    const age = performance.now() / 1000 - this.#fetched;
    if (age > this.old || (!this.#keys.has(id) && age > this.pause)) {
      this.#coming ??= this.#fetch().finally(() => (this.#coming = undefined));
      await this.#coming;
    }
    const found = this.#keys.get(id);
    if (!found) throw new Rejected("it is signed with a key that the server does not publish");
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

/** Verifies notifications, and detects repeats. */
export class Receiver {
  readonly #used = new Map<string, number>();
  readonly #done = new Map<string, number>();

  /** issuer: the server's public address. audience: our own URL, as registered with the server. */
  constructor(
    private readonly issuer: string,
    private readonly audience: string,
    private readonly keys: Keys,
  ) {}

  /**
   * Returns the claims of a genuine notification. Throws Rejected, and other errors if the keys are unavailable:
   * respond with 503 then, and the server retries.
   */
  async check(signature: string, body: Buffer): Promise<Claims> {
    const [head, payload, proof, ...more] = signature.split(".");
    if (!head || !payload || !proof || more.length) throw new Rejected("it has no signature");
    const header = read<{ alg?: string; kid?: string }>(head);
    const { algorithm, key } = await this.keys.find(String(header.kid));
    if (header.alg !== algorithm) throw new Rejected("its signature names another algorithm than its key");
    const signed = Buffer.from(`${head}.${payload}`);
    const bytes = Buffer.from(proof, "base64url");
    const good =
      algorithm === "EdDSA"
        ? verify(null, signed, key, bytes)
        : algorithm === "ES256" && verify("sha256", signed, { key, dsaEncoding: "ieee-p1363" }, bytes);
    if (!good) throw new Rejected("its signature is invalid");
    const claims = read<Claims>(payload);
    const now = Date.now() / 1000;
    if (claims.iss !== this.issuer) throw new Rejected("it is signed by another server");
    if (claims.aud !== this.audience) throw new Rejected("it is addressed to another receiver");
    if (!(now < claims.exp + SKEW && claims.iat < now + SKEW)) throw new Rejected("its signature has expired");
    if (claims.request_body_sha256 !== createHash("sha256").update(body).digest("hex"))
      throw new Rejected("its body is not the signed one");
    // Each attempt has a new signature, so a second use is a replay.
    if (this.#used.has(claims.jti)) throw new Rejected("this signature was already used");
    this.#used.set(claims.jti, claims.exp);
    for (const [jti, expires] of this.#used) {
      if (expires >= now - 2 * SKEW) break;
      this.#used.delete(jti); // refused for its age from now on
    }
    return claims;
  }

  /** Whether this event was not accepted yet. Events of a task arrive in order, so the last number is enough. */
  isNew(claims: Claims): boolean {
    return claims.sequence > (this.#done.get(task(claims)) ?? 0);
  }

  /** Records an accepted event. In production: in the database, in the transaction that stores the event. */
  done(claims: Claims): void {
    const key = task(claims);
    this.#done.delete(key);
    this.#done.set(key, claims.sequence);
    if (this.#done.size > REMEMBERED) for (const oldest of this.#done.keys()) return void this.#done.delete(oldest);
  }
}

/** Returns the series of event numbers. A restored store starts a new series. */
function task(claims: Claims): string {
  return `${claims.configId} ${claims.event.slice(0, claims.event.lastIndexOf("."))}`;
}

function read<T>(text: string): T {
  try {
    const value: unknown = JSON.parse(Buffer.from(text, "base64url").toString());
    if (typeof value === "object" && value !== null) return value as T;
  } catch {
    // reported below
  }
  throw new Rejected("its signature cannot be read");
}

// Web server ---------------------------------------------------------------------------------------------------------

/** Returns the body; undefined if it is too large. */
async function bodyOf(request: IncomingMessage): Promise<Buffer | undefined> {
  const parts: Buffer[] = [];
  let size = 0;
  for await (const part of request as AsyncIterable<Buffer>) {
    size += part.length;
    if (size > MAX_BODY_BYTES) return undefined;
    parts.push(part);
  }
  return Buffer.concat(parts);
}

/** Responds with 200 to genuine notifications and repeats, 401 to others, 503 while the keys are unavailable. */
async function take(receiver: Receiver, request: IncomingMessage): Promise<[number, string]> {
  const body = request.method === "POST" ? await bodyOf(request) : undefined;
  if (!body?.length) return [413, `a notification is a POST of 1 to ${MAX_BODY_BYTES} bytes`];
  let claims: Claims;
  try {
    claims = await receiver.check(String(request.headers["dragoman-signature"] ?? ""), body);
  } catch (error) {
    return error instanceof Rejected ? [401, error.message] : [503, `the server's keys are unavailable: ${error}`];
  }
  if (!receiver.isNew(claims)) return [200, "a repeat"];
  const line = { task: claims.taskId, sequence: claims.sequence, body: JSON.parse(body.toString()) };
  console.log(JSON.stringify(line)); // here goes what is to be done with it; if that fails, answer 500
  receiver.done(claims);
  return [200, "accepted"];
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
