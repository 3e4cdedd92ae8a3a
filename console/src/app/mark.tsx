/** The product's mark: two strokes that meet, one turned into the other. */
export function Mark() {
  return (
    <svg class="mark" viewBox="0 0 24 24" aria-hidden="true">
      <rect width="24" height="24" rx="6" />
      <path d="M7 6h4.5a6 6 0 0 1 0 12H7" />
      <path d="M7 12h7.5M11.5 9l3 3-3 3" />
    </svg>
  );
}
