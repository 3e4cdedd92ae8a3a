// Light or dark: the system's setting unless the user chose one.

import { signal } from "@preact/signals";

export const THEMES = [
  { id: "system", name: "System" },
  { id: "light", name: "Light" },
  { id: "dark", name: "Dark" },
] as const;

export type Theme = (typeof THEMES)[number]["id"];

const STORAGE_KEY = "dragoman.theme";

export const theme = signal<Theme>((localStorage.getItem(STORAGE_KEY) as Theme | null) ?? "system");

export function setTheme(value: Theme): void {
  theme.value = value;
  localStorage.setItem(STORAGE_KEY, value);
  applyTheme();
}

export function applyTheme(): void {
  document.documentElement.dataset["theme"] = theme.value;
}
