// Stacked bars over time. The figures of the bar under the pointer replace the totals in the legend.

import { useSignal } from "@preact/signals";
import { sum } from "./format";

/** Colors: `main` and `quiet` for what is normal, `notice` for what waits, `bad` for failures only. */
export type Tone = "main" | "quiet" | "notice" | "bad";

export interface Series {
  name: string;
  tone: Tone;
  values: readonly number[];
}

interface BarChartProps {
  title: string;
  /** One for each bar, from the oldest to the newest. */
  labels: readonly string[];
  /** From the bottom to the top of the bars. */
  series: readonly Series[];
  unit: (value: number) => string;
  /** Whether the values are whole numbers. */
  isInteger?: boolean;
  /** Where a click on each bar leads: to what it counts. */
  links?: readonly string[];
}

const HEIGHT = 100;
/** Width of a bar's place, and the space between two bars, in units of the drawing. */
const SLOT_WIDTH = 10;
const GAP = 2;
const MAX_LABELS = 7;
/** Longer series have a table of their own on the page. */
const MAX_TABLE_ROWS = 24;

export function BarChart({ title, labels, series, unit, isInteger = false, links = [] }: BarChartProps) {
  const hovered = useSignal<number | undefined>(undefined);
  const max = Math.max(0, ...labels.map((_, bar) => sum(series.map((each) => each.values[bar] ?? 0))));
  const top = roundUp(isInteger ? Math.max(max, 2) : max);
  const total = (each: Series) => sum(each.values);
  const selected = hovered.value !== undefined && hovered.value < labels.length ? hovered.value : undefined;
  return (
    <figure class="bars">
      <figcaption>
        <b>{selected === undefined ? title : labels[selected]}</b>
        <ul>
          {series.map((each) => (
            <li key={each.name} data-tone={each.tone}>
              {each.name} <b>{unit(selected === undefined ? total(each) : (each.values[selected] ?? 0))}</b>
            </li>
          ))}
        </ul>
      </figcaption>
      <div class="drawing">
        <p class="scale" aria-hidden="true">
          {[1, 0.5, 0].map((part) => (
            <span key={part}>{max || !part ? unit(top * part) : ""}</span>
          ))}
        </p>
        <svg
          viewBox={`0 0 ${labels.length * SLOT_WIDTH} ${HEIGHT}`}
          preserveAspectRatio="none"
          role="img"
          aria-label={`${title}: ${series.map((each) => `${each.name} ${unit(total(each))}`).join(", ")}`}
          onPointerLeave={() => (hovered.value = undefined)}
        >
          {[0, 0.5, 1].map((part) => (
            <line key={part} x1={0} x2={labels.length * SLOT_WIDTH} y1={HEIGHT * part} y2={HEIGHT * part} class="grid" />
          ))}
          {labels.map((label, bar) => (
            <g
              key={label}
              class={links[bar] ? "linked" : undefined}
              onPointerEnter={() => (hovered.value = bar)}
              onClick={() => links[bar] && (location.hash = links[bar])}
            >
              <rect class="place" x={bar * SLOT_WIDTH} width={SLOT_WIDTH} y={0} height={HEIGHT} data-here={bar === selected} />
              <BarStack bar={bar} series={series} top={top} />
            </g>
          ))}
        </svg>
        <p class="axis" aria-hidden="true">
          {axisBars(labels.length).map((bar) => (
            <span key={bar}>{labels[bar]?.replace(/^\d{4}-(?=\d\d-)/, "")}</span>
          ))}
        </p>
      </div>
      {labels.length <= MAX_TABLE_ROWS && <Table title={title} labels={labels} series={series} unit={unit} />}
    </figure>
  );
}

/** The bars as a table for screen readers. */
function Table({ title, labels, series, unit }: BarChartProps) {
  return (
    <table class="hidden">
      <caption>{title}</caption>
      <thead>
        <tr>
          <th scope="col">Time</th>
          {series.map((each) => (
            <th key={each.name} scope="col">
              {each.name}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {labels.map((label, bar) => (
          <tr key={label}>
            <th scope="row">{label}</th>
            {series.map((each) => (
              <td key={each.name}>{unit(each.values[bar] ?? 0)}</td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function BarStack({ bar, series, top }: { bar: number; series: readonly Series[]; top: number }) {
  let below = 0;
  return (
    <>
      {series.map((each) => {
        const height = ((each.values[bar] ?? 0) / top) * HEIGHT;
        below += height;
        if (!height) return null;
        const x = bar * SLOT_WIDTH + GAP / 2;
        return <rect key={each.name} data-tone={each.tone} x={x} width={SLOT_WIDTH - GAP} y={HEIGHT - below} height={height} />;
      })}
    </>
  );
}

/** The bars that have a label: at the same distances, with the first and the last. */
function axisBars(count: number): number[] {
  const labeled = Math.min(count, MAX_LABELS);
  return Array.from({ length: labeled }, (_, index) => Math.round((index * (count - 1)) / Math.max(labeled - 1, 1)));
}

/** The next number whose half is round, too. */
function roundUp(value: number): number {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.6, 2, 3, 4, 6, 8, 10].map((step) => step * power).find((step) => step >= value * 0.999) ?? value;
}

/** A bar chart without labels, as high as a line of text. `title`: its text for screen readers. */
export function Sparkline({ title, series }: { title: string; series: readonly Series[] }) {
  const bars = Math.max(...series.map((each) => each.values.length), 1);
  const each = Array.from({ length: bars }, (_, bar) => sum(series.map((each) => each.values[bar] ?? 0)));
  const top = Math.max(1, ...each);
  return (
    <svg class="spark" viewBox={`0 0 ${bars * SLOT_WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={title}>
      <line x1={0} x2={bars * SLOT_WIDTH} y1={HEIGHT} y2={HEIGHT} class="grid" />
      {each.map((_, bar) => (
        <BarStack key={bar} bar={bar} series={series} top={top} />
      ))}
    </svg>
  );
}
