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
`,l={online:"online",away:"away",busy:"do not disturb",offline:"offline",unknown:"status unknown",stale:"last known"},u=["online","away","busy","offline"],i,n=l,a,r=new Set,s=new Set;function w(e,t={}){i=e,n={...l,...t.words};let o=t.name??"green-dot";customElements.get(o)||customElements.define(o,class extends f(){});for(let c of r)c.look()}var h;function f(){return h??=class extends HTMLElement{static observedAttributes=["user"];#e=document.createElement("i");#t=()=>{};#n;#o="unknown";#s=!1;constructor(){super(),this.#e.setAttribute("role","img");let e=this.attachShadow({mode:"open"});v(e),e.append(this.#e)}connectedCallback(){r.add(this),this.look()}disconnectedCallback(){r.delete(this),this.#t()}attributeChangedCallback(){this.isConnected&&this.look()}look(){this.#t(),this.#t=()=>{};let e=this.getAttribute("user"),t=this.#s?void 0:this.getAttribute("status");this.#o=u.find(o=>o===t)??"unknown",this.#a(void 0),e&&i&&(this.#t=i.watch([e],o=>this.#a(o)))}#a(e){this.#n=e,s.size||requestAnimationFrame(b),s.add(this)}paint(){this.#s=!0;let{status:e,stale:t}=this.#n??{status:this.#o,stale:this.#o!=="unknown"};this.#e.className=t?`${e} stale`:e;let o=t?`${n[e]} (${n.stale})`:n[e];this.#e.setAttribute("aria-label",o),this.#e.title=o,this.setAttribute("status",e),this.toggleAttribute("stale",t)}}}function b(){let e=[...s];s.clear();for(let t of e)t.paint()}function v(e){try{a||(a=new CSSStyleSheet).replaceSync(d),e.adoptedStyleSheets=[a]}catch{e.append(Object.assign(document.createElement("style"),{textContent:d}))}}export{w as defineGreenDot};
