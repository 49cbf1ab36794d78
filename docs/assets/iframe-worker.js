// A page that was opened as a file may not start a Worker, so the search of this site runs in a
// hidden frame instead. The worker's script expects `IFrameWorker` in its parent, its own address
// in the first script of its document, and an `importScripts` that returns a promise.
class IFrameWorker extends EventTarget {
  constructor(address) {
    super();
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.append(this.frame);
    const inside = this.frame.contentWindow;
    const page = inside.document;
    inside.postMessage = (data) =>
      this.dispatchEvent(new MessageEvent("message", { data: structuredClone(data) }));
    inside.importScripts = async (...scripts) => {
      for (const script of scripts) await IFrameWorker.load(page, script);
    };
    this.started = IFrameWorker.load(page, address);
  }

  static load(page, address) {
    return new Promise((done, failed) => {
      const script = page.createElement("script");
      Object.assign(script, { src: address, onload: done, onerror: failed });
      page.body.append(script);
    });
  }

  async postMessage(data) {
    await this.started;
    const event = new MessageEvent("message", { data: structuredClone(data) });
    this.frame.contentWindow.dispatchEvent(event);
  }

  terminate() {
    this.frame.remove();
  }
}

if (location.protocol === "file:") {
  window.IFrameWorker = IFrameWorker;
  window.Worker = IFrameWorker;
}
