// The parts of Apache ECharts that Remat's pages use; `refresh` bundles them into echarts.min.js. Timelines need stacked areas
// (lines), zoom, and the canvas renderer for many points; SVG files need the SVG renderer.
import { use } from 'echarts/core';
import { CustomChart, LineChart, ScatterChart } from 'echarts/charts';
import {
  DataZoomComponent, GridComponent, LegendComponent, MarkAreaComponent, MarkLineComponent, TitleComponent, ToolboxComponent,
  TooltipComponent,
} from 'echarts/components';
import { CanvasRenderer, SVGRenderer } from 'echarts/renderers';

use([
  CustomChart, LineChart, ScatterChart, DataZoomComponent, GridComponent, LegendComponent, MarkAreaComponent, MarkLineComponent,
  TitleComponent, ToolboxComponent, TooltipComponent, CanvasRenderer, SVGRenderer,
]);
export { init } from 'echarts/core';
