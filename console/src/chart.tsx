// A line chart of the last minutes.

export interface Series {
  name: string;
  values: readonly (number | undefined)[];
}

const WIDE = 600;
const HIGH = 120;

interface Shown {
  title: string;
  unit: (value: number) => string;
  series: readonly Series[];
  /** Labels of the first and last time. */
  from: string;
  most: number;
}

export function Chart({ title, unit, series, from, most }: Shown) {
  const values = series.flatMap((one) => one.values.filter((value) => value !== undefined));
  const top = round(Math.max(...values, 0));
  const said = series.map((one) => {
    const last = one.values.findLast((value) => value !== undefined);
    return { name: one.name, text: last === undefined ? "–" : unit(last) };
  });
  const path = (one: Series) => {
    let pen = "M";
    return one.values
      .map((value, index) => {
        if (value === undefined) {
          pen = "M";
          return "";
        }
        const x = WIDE - ((one.values.length - 1 - index) * WIDE) / Math.max(most - 1, 1);
        const step = `${pen}${x.toFixed(1)},${(HIGH - (value / top) * HIGH).toFixed(1)}`;
        pen = "L";
        return step;
      })
      .join("");
  };
  return (
    <figure class="chart">
      <figcaption>
        <h2>{title}</h2>
        <ul>
          {said.map((one, index) => (
            <li key={one.name} data-line={index}>
              {one.name} <b>{one.text}</b>
            </li>
          ))}
        </ul>
      </figcaption>
      <div class="plot">
        <span class="top">{unit(top)}</span>
        <svg
          viewBox={`0 0 ${WIDE} ${HIGH}`}
          preserveAspectRatio="none"
          role="img"
          aria-label={`${title}: ${said.map((one) => `${one.name} ${one.text}`).join(", ")}`}
        >
          {[0, 0.5, 1].map((at) => (
            <line key={at} x1={0} x2={WIDE} y1={HIGH * at} y2={HIGH * at} class="grid" />
          ))}
          {series.map((one, index) => (
            <path key={one.name} d={path(one)} data-line={index} />
          ))}
        </svg>
        <span class="from">{from}</span>
        <span class="to">now</span>
      </div>
    </figure>
  );
}

/** The next round number: 1, 2 or 5 times a power of ten. */
function round(value: number): number {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999) ?? value;
}
