// Search from disk: a browser starts no Worker for file://, so the script of the search runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const base = new URL(url, document.baseURI);
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      const load = (address) =>
        new Promise((done, failed) => {
          const script = this.inside.document.createElement("script");
          Object.assign(script, { src: new URL(address, base).href, onload: done, onerror: failed });
          this.inside.document.body.append(script);
        });
      this.inside.importScripts = (...urls) => urls.reduce((before, next) => before.then(() => load(next)), this.loaded);
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.loaded = Promise.resolve();
      this.loaded = load(base);
    }
    postMessage(data) {
      this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.inside.frameElement.remove();
    }
  };
}
