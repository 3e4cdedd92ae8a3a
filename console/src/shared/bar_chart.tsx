// Stacked bars over time. The figures of the bar under the pointer replace the totals in the legend.

import { useSignal } from "@preact/signals";
import { sum } from "./format";

/** Colors: `main` and `quiet` for what is normal, `ask` for what waits, `bad` for failures only. */
export type Tone = "main" | "quiet" | "ask" | "bad";

export interface Series {
  name: string;
  tone: Tone;
  values: readonly number[];
}

interface Shown {
  title: string;
  /** One for each bar, from the oldest to the newest. */
  labels: readonly string[];
  /** From the bottom to the top of the bars. */
  series: readonly Series[];
  unit: (value: number) => string;
  /** Whether the values are whole numbers. */
  whole?: boolean;
}

const HIGH = 100;
/** Width of a bar's place, and the space between two bars, in units of the drawing. */
const PLACE = 10;
const GAP = 2;
/** Longer series have a table of their own on the page. */
const MOST_ROWS = 24;

export function Bars({ title, labels, series, unit, whole = false }: Shown) {
  const at = useSignal<number | undefined>(undefined);
  const most = Math.max(0, ...labels.map((_, bar) => sum(series.map((one) => one.values[bar] ?? 0))));
  const top = round(whole ? Math.max(most, 2) : most);
  const total = (one: Series) => sum(one.values);
  const here = at.value !== undefined && at.value < labels.length ? at.value : undefined;
  return (
    <figure class="bars">
      <figcaption>
        <b>{here === undefined ? title : labels[here]}</b>
        <ul>
          {series.map((one) => (
            <li key={one.name} data-tone={one.tone}>
              {one.name} <b>{unit(here === undefined ? total(one) : (one.values[here] ?? 0))}</b>
            </li>
          ))}
        </ul>
      </figcaption>
      <div class="drawing">
        <p class="scale" aria-hidden="true">
          {[1, 0.5, 0].map((part) => (
            <span key={part}>{most || !part ? unit(top * part) : ""}</span>
          ))}
        </p>
        <svg
          viewBox={`0 0 ${labels.length * PLACE} ${HIGH}`}
          preserveAspectRatio="none"
          role="img"
          aria-label={`${title}: ${series.map((one) => `${one.name} ${unit(total(one))}`).join(", ")}`}
          onPointerLeave={() => (at.value = undefined)}
        >
          {[0, 0.5, 1].map((part) => (
            <line key={part} x1={0} x2={labels.length * PLACE} y1={HIGH * part} y2={HIGH * part} class="grid" />
          ))}
          {labels.map((label, bar) => (
            <g key={label} onPointerEnter={() => (at.value = bar)}>
              <rect class="place" x={bar * PLACE} width={PLACE} y={0} height={HIGH} data-here={bar === here} />
              <Stack bar={bar} series={series} top={top} />
            </g>
          ))}
        </svg>
        <p class="axis" aria-hidden="true">
          {[0, Math.floor((labels.length - 1) / 2), labels.length - 1]
            .filter((bar, index, all) => all.indexOf(bar) === index)
            .map((bar) => (
              <span key={bar}>{labels[bar]}</span>
            ))}
        </p>
      </div>
      {labels.length <= MOST_ROWS && <Table title={title} labels={labels} series={series} unit={unit} />}
    </figure>
  );
}

/** The bars for those who do not see them. */
function Table({ title, labels, series, unit }: Shown) {
  return (
    <table class="hidden">
      <caption>{title}</caption>
      <thead>
        <tr>
          <th scope="col">Time</th>
          {series.map((one) => (
            <th key={one.name} scope="col">
              {one.name}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {labels.map((label, bar) => (
          <tr key={label}>
            <th scope="row">{label}</th>
            {series.map((one) => (
              <td key={one.name}>{unit(one.values[bar] ?? 0)}</td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Stack({ bar, series, top }: { bar: number; series: readonly Series[]; top: number }) {
  let below = 0;
  return (
    <>
      {series.map((one) => {
        const high = ((one.values[bar] ?? 0) / top) * HIGH;
        below += high;
        if (!high) return null;
        const x = bar * PLACE + GAP / 2;
        return <rect key={one.name} data-tone={one.tone} x={x} width={PLACE - GAP} y={HIGH - below} height={high} />;
      })}
    </>
  );
}

/** The next number whose half is round, too. */
function round(value: number): number {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.6, 2, 3, 4, 6, 8, 10].map((step) => step * power).find((step) => step >= value * 0.999) ?? value;
}

/** The same without labels, as high as a line of text. `title`: what it shows, for those who do not see it. */
export function Spark({ title, series }: { title: string; series: readonly Series[] }) {
  const bars = Math.max(...series.map((one) => one.values.length), 1);
  const each = Array.from({ length: bars }, (_, bar) => sum(series.map((one) => one.values[bar] ?? 0)));
  const top = Math.max(1, ...each);
  return (
    <svg class="spark" viewBox={`0 0 ${bars * PLACE} ${HIGH}`} preserveAspectRatio="none" role="img" aria-label={title}>
      <line x1={0} x2={bars * PLACE} y1={HIGH} y2={HIGH} class="grid" />
      {each.map((_, bar) => (
        <Stack key={bar} bar={bar} series={series} top={top} />
      ))}
    </svg>
  );
}
