// How pages look, in light and in dark and on paper; and how a timeline zooms. Pages read without the script.
#include "harness/html/page.h"

namespace seeksim::harness::html {

const char* const kStyle = R"css(
:root{--bg:#fff;--fg:#1c2128;--soft:#57606a;--line:#d0d7de;--card:#f6f8fa;--good:#116329;--goodbg:#dafbe1;
--bad:#a40e26;
--badbg:#ffebe9;--blind:#6e5600;--blindbg:#fff8c5;--compute:#2f6fbd;--comm:#dd8a1f;--copies:#7d57c1;--waits:#a3acb8;
--idle:#eef1f4;--fault:#cf222e;--detected:#bc4c00;--agreed:#8250df;--rebuilt:#0969da;--resumed:#1a7f37;
--restart:#57606a}
@media (prefers-color-scheme:dark){:root{--bg:#0d1117;--fg:#e6edf3;--soft:#9aa4af;--line:#3d444d;--card:#161b22;
--good:#56d364;--goodbg:#12261a;--bad:#ff8f88;--badbg:#3a1417;--blind:#e3b341;--blindbg:#2e2508;--compute:#4f93e6;
--comm:#eba33f;--copies:#a787e8;--waits:#6b7683;--idle:#1f262e;--fault:#ff6a61;--detected:#f0883e;--agreed:#b98cff;
--rebuilt:#58a6ff;--resumed:#3fb950;--restart:#9aa4af}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1180px;padding:1rem;background:var(--bg);color:var(--fg);
font:16px/1.5 system-ui,"DejaVu Sans",sans-serif;overflow-wrap:break-word}
h1{font-size:1.6rem;margin:.2rem 0}h2{font-size:1.2rem;margin:2rem 0 .6rem;border-bottom:1px solid var(--line)}
h3{font-size:1rem;margin:1.2rem 0 .4rem}p{margin:.4rem 0}a{color:var(--rebuilt)}
.sub,.note,figcaption,footer{color:var(--soft);font-size:.9rem}
nav ul{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1rem;padding:0;font-size:.9rem}
.verdict{padding:.7rem 1rem;border-radius:6px;border-left:6px solid;font-size:1.05rem}
.verdict b{display:block;font-size:1.3rem}
.pass{background:var(--goodbg);border-color:var(--good)}.pass b{color:var(--good)}
.fail{background:var(--badbg);border-color:var(--bad)}.fail b{color:var(--bad)}
.ok,.no,.blind{white-space:nowrap}.ok{color:var(--good);font-weight:600}.no{color:var(--bad);font-weight:600}
.blind{color:var(--blind);font-weight:600}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(178px,1fr));gap:.5rem;margin:.8rem 0;padding:0}
.facts div{background:var(--card);border:1px solid var(--line);border-radius:6px;padding:.4rem .6rem}
.facts dt{color:var(--soft);font-size:.8rem}.facts dd,h1,pre,code{overflow-wrap:anywhere}.facts dd{margin:0;
font-size:.9rem;font-variant-numeric:tabular-nums}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem;margin:.5rem 0;font-variant-numeric:tabular-nums}
caption{text-align:left;color:var(--soft);padding:.2rem 0}
th,td{border-bottom:1px solid var(--line);padding:.25rem .7rem .25rem 0;text-align:left;vertical-align:top}
thead th{color:var(--soft);font-weight:600;white-space:nowrap}tbody th{font-weight:500}
td.n{white-space:nowrap}pre,code{font:.85rem/1.45 ui-monospace,"DejaVu Sans Mono",monospace}
pre{background:var(--card);border:1px solid var(--line);border-radius:6px;padding:.6rem;white-space:pre-wrap}
details{margin:.5rem 0}summary{cursor:pointer;color:var(--soft)}
figure{margin:.6rem 0}svg{display:block;max-width:100%}svg text{fill:var(--fg);font-size:13px}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,340px),1fr));gap:1rem}
.charts figure{margin:0;background:var(--card);border:1px solid var(--line);border-radius:6px;padding:.5rem}
.charts svg{width:100%;height:auto}.charts h3{margin:.1rem .3rem}
.grid{stroke:var(--line);stroke-width:1}.soft{fill:var(--soft)!important}
.s0{stroke:var(--compute);fill:none;stroke-width:2}.s1{stroke:var(--comm);fill:none;stroke-width:2;
stroke-dasharray:5 4}
.d0{fill:var(--compute)}.d1{fill:var(--comm)}
.key{display:flex;flex-wrap:wrap;gap:.2rem 1rem;font-size:.85rem;color:var(--soft);padding:0;list-style:none;
margin:.3rem 0}
.key svg{display:inline-block;vertical-align:-1px;margin-right:.35rem}
.tl{display:grid;grid-template-columns:max-content 1fr;column-gap:.5rem}
.tl .names div{font-size:.75rem;white-space:nowrap;color:var(--soft);text-align:right;overflow:hidden}
.tl .plot{position:relative;min-width:0;margin-right:.8rem}.tl svg{width:100%;cursor:grab;touch-action:pan-y}
.tl svg:focus{outline:2px solid var(--rebuilt)}
.tl .at{position:relative}.tl .at span{position:absolute;transform:translateX(-50%);white-space:nowrap}
.tl .axis{height:1.4rem;font-size:.75rem;color:var(--soft)}.tl .axis .l{transform:none}
.tl .axis .r{transform:translateX(-100%)}
.badge{display:inline-block;min-width:1.15rem;border-radius:.6rem;text-align:center;font-size:.7rem;
line-height:1.15rem;
padding:0 .2rem;color:var(--bg);font-weight:700}
.idle{fill:var(--idle)}.compute{stroke:var(--compute)}.comm{stroke:var(--comm)}.copies{stroke:var(--copies)}
.waits{stroke:var(--waits)}.area .compute{fill:var(--compute);stroke:none}.area .comm{fill:var(--comm);stroke:none}
.area .copies{fill:var(--copies);stroke:none}.area .waits{fill:var(--waits);stroke:none}
.m{fill:none;stroke-width:1.5;vector-effect:non-scaling-stroke}
.m.fault{stroke:var(--fault)}.m.detected{stroke:var(--detected)}.m.agreed{stroke:var(--agreed)}
.m.rebuilt{stroke:var(--rebuilt)}.m.resumed{stroke:var(--resumed)}.m.restart{stroke:var(--restart)}
.badge.fault{background:var(--fault)}.badge.detected{background:var(--detected)}
.badge.agreed{background:var(--agreed)}
.badge.rebuilt{background:var(--rebuilt)}.badge.resumed{background:var(--resumed)}
.badge.restart{background:var(--restart)}
.gone{fill:var(--soft);fill-opacity:.3}
.break{fill:var(--bg);fill-opacity:.65}
.zoom{display:none;gap:.4rem}.js .zoom{display:flex}
button{font:inherit;font-size:.85rem;padding:.1rem .6rem;border:1px solid var(--line);border-radius:4px;
background:var(--card);color:var(--fg)}
.box{fill:var(--card);stroke:var(--line)}.box.hot{stroke:var(--fault);stroke-width:2}
.edge{stroke:var(--soft);stroke-width:1.5;fill:none}.head{fill:var(--soft)}
.sw{display:inline-block;vertical-align:-1px}.mem svg{width:100%;height:auto}.mem .peak{fill:var(--fault)}.mem .at{stroke:var(--fault);
stroke-width:1.5;fill:none}
.k0{fill:#3a78c2}.k1{fill:#d9822b}.k2{fill:#4f9d57}.k3{fill:#b54a4f}.k4{fill:#8a63c4}.k5{fill:#2a9d9a}.k6{fill:#c2a21f}
.k7{fill:#c65d9b}.k8{fill:#7a8b3a}.k9{fill:#8c6a4f}.k10{fill:#5c7f99}.k11{fill:#9a9fa8}
.bar{fill:var(--compute)}.side{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,240px),1fr));
gap:.8rem}
.side div{border:1px solid var(--line);border-radius:6px;padding:.5rem .8rem;background:var(--card)}
.side b{display:block;color:var(--soft);font-size:.8rem}.side .have{border-color:var(--bad)}
.side .want{border-color:var(--good)}.side code{font-size:1.05rem}
table.sweep td{border:2px solid var(--bg);padding:.15rem .3rem;text-align:center;white-space:nowrap}
table.sweep thead th.v{text-align:center;padding-right:0}
table.sweep td.g{background:var(--goodbg);color:var(--good)}table.sweep td.r{background:var(--badbg);color:var(--bad);
font-weight:700}table.sweep th{white-space:nowrap}table.sweep a{color:inherit;text-decoration:none}
@media (max-width:600px){body{padding:.6rem;font-size:15px}.tl .names div{font-size:.65rem}}
@media print{:root{--bg:#fff;--fg:#000;--soft:#444;--line:#bbb;--card:#fff;--good:#116329;--bad:#a40e26;--idle:#eee}
body{max-width:none;font-size:11px}nav,.zoom,.js .break{fill:var(--bg);fill-opacity:.65}
.zoom{display:none}section{break-inside:auto}
figure,tr,.facts{break-inside:avoid}.wide{overflow:visible}*{print-color-adjust:exact}}
)css";

// Wheel with Ctrl, buttons and keys zoom; dragging and arrows pan. Axis labels and badges move along.
const char* const kScript = R"js(
document.documentElement.classList.add("js");
for(const d of document.querySelectorAll("details"))
addEventListener("beforeprint",()=>{d.open=true});
for(const f of document.querySelectorAll(".timeline")){
const s=f.querySelector(".tl svg"),all=s.viewBox.baseVal.width,h=s.viewBox.baseVal.height;
const knots=JSON.parse(s.dataset.knots);let x=0,w=all;
const time=u=>{let i=1;while(i<knots.length-1&&knots[i][1]<u)++i;const a=knots[i-1],b=knots[i];
return a[0]+(b[0]-a[0])*(u-a[1])/(b[1]-a[1])};
const text=t=>{const a=Math.abs(t);return a==0||a>=1?+t.toPrecision(6)+" s":a>=1e-3?+(t*1e3).toPrecision(6)+" ms":
+(t*1e6).toPrecision(6)+" \u00b5s"};
const draw=()=>{w=Math.min(all,Math.max(all/20000,w));x=Math.min(all-w,Math.max(0,x));
s.setAttribute("viewBox",x+" 0 "+w+" "+h);
for(const m of f.querySelectorAll(".marks span")){const p=(+m.dataset.x-x)/w;m.style.left=p*100+"%";
m.hidden=p<0||p>1}
for(const m of f.querySelectorAll(".axis span")){const p=+m.dataset.p;
m.textContent=text(time(x+w*p))}};
const zoom=(k,p)=>{const v=w;w=Math.min(all,Math.max(all/20000,w*k));x+=(v-w)*p;draw()};
const act={in:()=>zoom(.5,.5),out:()=>zoom(2,.5),all:()=>{x=0;w=all;draw()},left:()=>{x-=w/4;draw()},
right:()=>{x+=w/4;draw()}};
for(const b of f.querySelectorAll("button"))b.onclick=()=>act[b.dataset.do]();
s.onkeydown=e=>{const k={"+":"in","-":"out","0":"all",ArrowLeft:"left",ArrowRight:"right"}[e.key];
if(k){act[k]();e.preventDefault()}};
s.addEventListener("wheel",e=>{if(!e.ctrlKey)return;e.preventDefault();const r=s.getBoundingClientRect();
zoom(e.deltaY<0?.8:1.25,(e.clientX-r.left)/r.width)},{passive:false});
let at=null;s.onpointerdown=e=>{at=e.clientX;s.setPointerCapture(e.pointerId)};
s.onpointermove=e=>{if(at===null)return;x-=(e.clientX-at)/s.clientWidth*w;at=e.clientX;draw()};
s.onpointerup=s.onpointercancel=()=>{at=null};draw()}
)js";

}  // namespace seeksim::harness::html
