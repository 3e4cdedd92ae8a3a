// Light or dark: the system's setting unless the user chose one.

import { signal } from "@preact/signals";

export const LOOKS = [
  { id: "system", name: "System" },
  { id: "light", name: "Light" },
  { id: "dark", name: "Dark" },
] as const;

export type Look = (typeof LOOKS)[number]["id"];

const KEY = "dragoman.look";

export const look = signal<Look>((localStorage.getItem(KEY) as Look | null) ?? "system");

export function choose(chosen: Look): void {
  look.value = chosen;
  localStorage.setItem(KEY, chosen);
  wear();
}

export function wear(): void {
  document.documentElement.dataset["look"] = look.value;
}
