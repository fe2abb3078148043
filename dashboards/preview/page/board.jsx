// A dashboard's JSON as a scene: what Grafana's own loader does for the features that these dashboards use.
import {
  DataSourceVariable,
  EmbeddedScene,
  QueryVariable,
  SceneControlsSpacer,
  SceneDataTransformer,
  SceneGridItem,
  SceneGridLayout,
  SceneGridRow,
  SceneObjectBase,
  SceneQueryRunner,
  SceneRefreshPicker,
  SceneTimePicker,
  SceneTimeRange,
  SceneVariableSet,
  ConstantVariable,
  TextBoxVariable,
  VariableValueSelectors,
  VizPanel,
  behaviors,
  sceneGraph,
} from '@grafana/scenes';
import { Icon, LinkButton, PanelChrome } from '@grafana/ui';

// A panel's link, the small arrow in its title.
class PanelLink extends SceneObjectBase {
  static Component = ({ model }) => {
    model.useState();
    return (
      <PanelChrome.TitleItem href={sceneGraph.interpolate(model, model.state.url)} title={model.state.title}>
        <Icon name="external-link-alt" />
      </PanelChrome.TitleItem>
    );
  };
}

class Links extends SceneObjectBase {
  static Component = ({ model }) => {
    model.useState();
    return model.state.links.map(({ title, url }) => (
      <LinkButton key={title} href={sceneGraph.interpolate(model, url)} size="sm" fill="text" variant="secondary">
        {title}
      </LinkButton>
    ));
  };
}

function variable(spec) {
  const common = { name: spec.name, label: spec.label, hide: spec.hide, skipUrlSync: spec.skipUrlSync };
  switch (spec.type) {
    case 'datasource':
      return new DataSourceVariable({ ...common, pluginId: spec.query });
    case 'query':
      return new QueryVariable({
        ...common,
        datasource: spec.datasource,
        query: spec.query,
        isMulti: spec.multi,
        includeAll: spec.includeAll,
        allValue: spec.allValue,
        refresh: spec.refresh,
        sort: spec.sort,
        value: spec.current?.value ?? '',
        text: spec.current?.text ?? '',
      });
    case 'textbox':
      return new TextBoxVariable({ ...common, value: spec.query ?? '' });
    case 'constant':
      return new ConstantVariable({ ...common, value: spec.query });
    default:
      throw new Error(`a variable of type ${spec.type}`);
  }
}

function viz(panel) {
  return new VizPanel({
    key: `panel-${panel.id}`,
    pluginId: panel.type,
    title: panel.title,
    description: panel.description,
    options: panel.options,
    fieldConfig: { overrides: [], ...panel.fieldConfig },
    titleItems: (panel.links ?? []).map((link) => new PanelLink(link)),
    $timeRange: panel.timeFrom && new SceneTimeRange({ from: `now-${panel.timeFrom}`, to: 'now', timeZone: 'utc' }),
    $data: new SceneDataTransformer({
      transformations: panel.transformations ?? [],
      $data: new SceneQueryRunner({ datasource: panel.datasource, queries: panel.targets, maxDataPoints: panel.maxDataPoints }),
    }),
  });
}

function item(panel) {
  const { x, y, w: width, h: height } = panel.gridPos;
  return new SceneGridItem({ x, y, width, height, isResizable: false, isDraggable: false, body: viz(panel) });
}

// Panels of an open row follow it in the list; those of a collapsed one are inside.
function grid(panels) {
  const children = [];
  let row;
  for (const panel of panels) {
    if (panel.type !== 'row') {
      (row ?? children).push(item(panel));
      continue;
    }
    row = (panel.panels ?? []).map(item);
    children.push({ panel, row });
  }
  return children.map((child) =>
    child.panel
      ? new SceneGridRow({
          title: child.panel.title,
          y: child.panel.gridPos.y,
          isCollapsed: Boolean(child.panel.collapsed),
          children: child.row,
        })
      : child
  );
}

export function scene(board, others) {
  return new EmbeddedScene({
    $timeRange: new SceneTimeRange({ from: board.time.from, to: board.time.to, timeZone: 'utc' }),
    $variables: new SceneVariableSet({ variables: board.templating.list.map(variable) }),
    $behaviors: [new behaviors.CursorSync({ key: 'cursor', sync: board.graphTooltip })],
    controls: [
      new VariableValueSelectors({}),
      new SceneControlsSpacer(),
      new Links({
        links: others.map(({ uid, title }) => ({ title, url: `/d/${uid}?\${__url_time_range}&\${__all_variables}` })),
      }),
      new SceneTimePicker({ isOnCanvas: true }),
      new SceneRefreshPicker({ intervals: ['5s', '1m'], isOnCanvas: true }),
    ],
    body: new SceneGridLayout({ isLazy: false, children: grid(board.panels) }),
  });
}
