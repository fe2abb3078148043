// The four kinds of panels of the dashboards. Grafana's own panel plugins are in no package; these put its
// published visualisations (time series, big value, bar gauge, table) into the frame that a plugin has.
import {
  FieldColorModeId,
  FieldType,
  PanelPlugin,
  VizOrientation,
  displayNameOverrideProcessor,
  getDisplayValueAlignmentFactors,
  getFieldDisplayValues,
  identityOverrideProcessor,
  numberOverrideProcessor,
  standardEditorsRegistry,
  standardFieldConfigEditorRegistry,
  standardTransformers,
  standardTransformersRegistry,
  stringOverrideProcessor,
  thresholdsOverrideProcessor,
  unitOverrideProcessor,
  valueMappingsOverrideProcessor,
} from '@grafana/data';
import { sceneUtils } from '@grafana/scenes';
import { BarGauge, BigValue, TimeSeries, VizRepeater, useTheme2 } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import { useMemo } from 'react';

const PROCESSORS = {
  displayName: displayNameOverrideProcessor,
  unit: unitOverrideProcessor,
  min: numberOverrideProcessor,
  max: numberOverrideProcessor,
  decimals: numberOverrideProcessor,
  noValue: stringOverrideProcessor,
  thresholds: thresholdsOverrideProcessor,
  mappings: valueMappingsOverrideProcessor,
  color: identityOverrideProcessor,
};
// Settings of a panel's own that its field configuration may hold, with Grafana's defaults.
const LINES = {
  drawStyle: 'line', lineWidth: 1, fillOpacity: 0, showPoints: 'auto', pointSize: 5, lineInterpolation: 'linear', barAlignment: 0,
  axisPlacement: 'auto', axisLabel: '', axisSoftMax: undefined, spanNulls: false, stacking: { mode: 'none', group: 'A' },
  thresholdsStyle: { mode: 'off' }, hideFrom: { legend: false, tooltip: false, viz: false },
};
const TABLE = { align: 'auto', cellOptions: { type: 'auto' }, width: undefined, minWidth: 150 };

function property(path, process, defaultValue) {
  return {
    id: path, path, name: path, defaultValue, process,
    editor: () => null, override: () => null, shouldApply: () => true, settings: {},
  };
}

function nothing() {
  return <div style={{ padding: 8 }}>No data</div>;
}

// What cannot be drawn is a gap, as in Grafana's own panel: quantiles of no traffic are NaN.
function drawable(field) {
  return field.type === FieldType.number
    ? { ...field, values: field.values.map((value) => (Number.isFinite(value) ? value : null)) }
    : field;
}

function Lines({ data, timeRange, timeZone, width, height, options }) {
  const frames = useMemo(
    () =>
      data.series
        .filter((frame) => frame.length > 0 && frame.fields.some(({ type }) => type === FieldType.number))
        .map((frame) => ({ ...frame, fields: frame.fields.map(drawable) })),
    [data.series]
  );
  if (!frames.length) {
    return nothing();
  }
  return (
    <TimeSeries
      frames={frames} structureRev={data.structureRev} timeRange={timeRange} timeZone={timeZone}
      width={width} height={height} legend={options.legend} options={options}
    />
  );
}

function display({ data, fieldConfig, options, replaceVariables, timeZone }, theme, sparkline) {
  return getFieldDisplayValues({
    fieldConfig, reduceOptions: options.reduceOptions, replaceVariables, theme, data: data.series, sparkline, timeZone,
  });
}

function Stat(props) {
  const theme = useTheme2();
  const { width, height, options, data } = props;
  const line = options.graphMode !== 'none';
  return (
    <VizRepeater
      getValues={() => display(props, theme, line)} source={data} width={width} height={height} orientation={VizOrientation.Auto}
      renderValue={({ value, width: w, height: h, count }) => (
        <BigValue
          value={value.display} width={w} height={h} count={count} theme={theme} sparkline={line ? value.sparkline : undefined}
          colorMode={options.colorMode} graphMode={options.graphMode} textMode={options.textMode}
          justifyMode={options.justifyMode ?? 'auto'}
        />
      )}
      renderCounter={data.structureRev ?? 0}
    />
  );
}

function Bars(props) {
  const theme = useTheme2();
  const { width, height, options, data } = props;
  return (
    <VizRepeater
      getValues={() => display(props, theme, false)} getAlignmentFactors={getDisplayValueAlignmentFactors}
      source={data} width={width} height={height} orientation={options.orientation} autoGrid minVizHeight={16} itemSpacing={4}
      renderValue={({ value, width: w, height: h, orientation, alignmentFactors }) => (
        <BarGauge
          value={value.display} field={value.field} width={w} height={h} orientation={orientation} theme={theme}
          itemSpacing={8} lcdCellWidth={12} displayMode={options.displayMode} alignmentFactors={alignmentFactors}
          text={options.text} showUnfilled
        />
      )}
      renderCounter={data.structureRev ?? 0}
    />
  );
}

function Grid({ data, width, height, timeRange, options }) {
  const [frame] = data.series;
  return frame?.length ? (
    <TableNG
      data={frame} width={width} height={height} timeRange={timeRange} structureRev={data.structureRev}
      noHeader={options.showHeader === false}
    />
  ) : (
    nothing()
  );
}

export function register() {
  standardEditorsRegistry.setInit(() => []);
  standardTransformersRegistry.setInit(() =>
    // Two entries share an id.
    [...new Map(Object.values(standardTransformers).map((t) => [t.id, t])).values()].map((transformation) => ({
      id: transformation.id,
      name: transformation.name,
      transformation: () => Promise.resolve(transformation),
    }))
  );
  standardFieldConfigEditorRegistry.setInit(() =>
    Object.entries(PROCESSORS).map(([path, process]) => property(path, process))
  );
  const plugin = (Component, color, custom = {}) =>
    new PanelPlugin(Component).useFieldConfig({
      standardOptions: { color: { defaultValue: { mode: color } } },
      useCustomConfig: (builder) =>
        Object.entries(custom).forEach(([path, value]) => {
          builder.addCustomEditor(property(path, identityOverrideProcessor, value));
        }),
    });
  const { PaletteClassic, Thresholds } = FieldColorModeId;
  for (const [pluginId, made] of Object.entries({
    timeseries: plugin(Lines, PaletteClassic, LINES),
    stat: plugin(Stat, Thresholds),
    bargauge: plugin(Bars, Thresholds),
    table: plugin(Grid, Thresholds, TABLE),
  })) {
    sceneUtils.registerRuntimePanelPlugin({ pluginId, plugin: made });
  }
}
