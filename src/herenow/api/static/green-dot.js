var d=`
:host { display: inline-block; width: var(--green-dot-size, .7em); height: var(--green-dot-size, .7em); vertical-align: baseline;
  --on: var(--green-dot-online, #23853d); --aw: var(--green-dot-away, #a66c00); --bu: var(--green-dot-busy, #c42b23); --of: var(--green-dot-offline, #6f7681); }
:host([hidden]) { display: none; }
@media (prefers-color-scheme: dark) { :host { --on: var(--green-dot-online, #4cc76a); --aw: var(--green-dot-away, #e2ac3c);
  --bu: var(--green-dot-busy, #ff6b61); --of: var(--green-dot-offline, #9aa3af); } }
i { display: block; box-sizing: border-box; width: 100%; height: 100%; border: .15em solid var(--of); border-radius: 50%; forced-color-adjust: none; }
.online { border-color: var(--on); background: var(--on); }
.away { border-color: var(--aw); background: linear-gradient(90deg, var(--aw) 50%, transparent 50%); }
.busy { border-color: var(--bu); background: var(--bu); border-radius: 15%; }
.unknown { border-style: dotted; }
.stale { opacity: .45; border-style: dashed; }
@media (forced-colors: active) { :host { --on: CanvasText; --aw: CanvasText; --bu: CanvasText; --of: CanvasText; } }
`,l={online:"online",away:"away",busy:"do not disturb",offline:"offline",unknown:"status unknown",stale:"last known"},r,n=l,a,i=new Set,s=new Set;function v(e,t={}){r=e,n={...l,...t.words};let o=t.name??"green-dot";customElements.get(o)||customElements.define(o,class extends h(){});for(let c of i)c.look()}var u;function h(){return u??=class extends HTMLElement{static observedAttributes=["user"];#e=document.createElement("i");#t=()=>{};#o;constructor(){super(),this.#e.setAttribute("role","img");let e=this.attachShadow({mode:"open"});f(e),e.append(this.#e)}connectedCallback(){i.add(this),this.look()}disconnectedCallback(){i.delete(this),this.#t()}attributeChangedCallback(){this.isConnected&&this.look()}look(){this.#t(),this.#t=()=>{};let e=this.getAttribute("user");this.#n(void 0),e&&r&&(this.#t=r.watch([e],t=>this.#n(t)))}#n(e){this.#o=e,s.size||requestAnimationFrame(b),s.add(this)}paint(){let{status:e="unknown",stale:t=!1}=this.#o??{};this.#e.className=t?`${e} stale`:e;let o=t?`${n[e]} (${n.stale})`:n[e];this.#e.setAttribute("aria-label",o),this.#e.title=o,this.setAttribute("status",e),this.toggleAttribute("stale",t)}}}function b(){let e=[...s];s.clear();for(let t of e)t.paint()}function f(e){try{a||(a=new CSSStyleSheet).replaceSync(d),e.adoptedStyleSheets=[a]}catch{e.append(Object.assign(document.createElement("style"),{textContent:d}))}}export{v as defineGreenDot};
