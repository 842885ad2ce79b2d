# Looks at lfactor ui as a user does, in headless Chromium: browser.py LINK SECOND-LINK RUNS CHROMIUM. Says what does not hold, and
# prints first paint and bytes. The first run is under way; the last is a simulated step, and the name of the one before it would run a script if it were taken for HTML.
import json
import sys
import time
from urllib.parse import urlparse

from playwright.sync_api import sync_playwright

link, second, runs, chromium = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
address = urlparse(link)


def check(ok, what):
    if not ok:
        sys.exit("does not hold: " + what)


def until(what, f, seconds=20):
    end = time.time() + seconds
    while time.time() < end:
        if f():
            return
        time.sleep(0.1)
    check(False, what)


with sync_playwright() as p:
    browser = p.chromium.launch(executable_path=chromium, args=[
        "--no-sandbox", "--host-resolver-rules=MAP evil.example 127.0.0.1", "--enable-precise-memory-info"])
    context = browser.new_context(viewport={"width": 1360, "height": 860})
    wrong = []
    page = context.new_page()
    page.on("pageerror", lambda e: wrong.append(str(e)))
    page.on("console", lambda m: wrong.append(m.text) if m.type == "error" and not any(
        code in m.text for code in ("401", "403", "422")) else None)
    check(page.goto(f"http://{address.netloc}/").status == 401, "a stranger sees nothing")
    page.goto(link)
    page.wait_for_selector("#runs .run")
    check("token" not in page.url, "the token has left the address")
    check(page.goto(link).status == 401, "a link works once")
    page.goto(f"http://{address.netloc}/")
    page.wait_for_selector(".u-over")
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    size = page.evaluate("[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]"
                         ".filter(x => !x.name.includes('/api/')).reduce((a, x) => a + x.transferSize, 0)")

    check(page.locator("#runs .run").count() == runs, "all runs are listed")
    check(not page.evaluate("window.hacked") and page.locator("#runs img").count() == 0, "a name is no HTML")
    check("<img" in page.locator("#runs").inner_text(), "the name is shown as it is")

    read = lambda: page.locator(".chart .read").first.inner_text()
    before = read()
    until("new steps are drawn as they come", lambda: read() != before)
    until("the page says that it is live", lambda: page.locator("#live").inner_text() == "live")

    over = page.locator(".u-over").first.bounding_box()
    at = lambda x: (over["x"] + over["width"] * x, over["y"] + over["height"] / 2)
    page.mouse.move(*at(.3))
    page.mouse.down()
    page.mouse.move(*at(.5), steps=4)
    page.mouse.up()
    until("dragging zooms", lambda: "steps " in page.locator(".bar").inner_text().split("all steps")[1])
    page.keyboard.press("r")
    until("r shows all steps again", lambda: "steps " not in page.locator(".bar").inner_text().split("all steps")[1])

    boxes = page.locator("#runs input[type=checkbox]")
    until("runs are compared", lambda: boxes.count() == runs and len(read().split("·")) >= 2)
    boxes.nth(1).uncheck()
    page.wait_for_selector(".u-over")

    page.keyboard.press("2")
    until("the graph has every rank", lambda: page.locator("svg.graph g").count() >= 4)
    until("edges are listed with rates", lambda: "rank0 → rank" in page.locator("table").first.inner_text())
    page.keyboard.press("3")
    page.wait_for_selector("canvas")
    until("the timeline has jobs", lambda: "newest of a run under way" in page.locator("#main").inner_text())
    drawn = "(() => { const c = document.querySelector('canvas'), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;" \
            "const s = new Set(); for (let i = 0; i < d.length; i += 4) if (d[i+3] > 200) s.add(d[i]+','+d[i+1]+','+d[i+2]); return s.size })()"
    until("the timeline is drawn", lambda: page.evaluate(drawn) > 4)
    page.keyboard.press("4")
    until("why leads from the coordinator to a root", lambda: page.locator(".chain .step").count() >= 1
          and "coordinator" in page.locator(".chain").inner_text())
    for key, text in (("5", "said"), ("6", "Pipeline"), ("7", "Checkpoints"), ("8", "predicted"), ("9", "jobs, ")):
        page.keyboard.press(key)
        until(f"page {key} shows {text}", lambda: text in page.locator("#main").inner_text())
    page.get_by_label("actor", exact=True).select_option("coordinator")
    until("lines are of the actor that was chosen", lambda: "rank0" not in page.locator("#main table").last.inner_text())
    page.locator("#runs .run").last.click()
    page.keyboard.press("2")
    until("a simulated step is shown at a moment", lambda: "of 4 at work" in page.locator("output").first.inner_text())
    moment = page.locator("output").first.inner_text()
    page.locator("input[aria-label='moment of the step']").fill("900")
    check(page.locator("output").first.inner_text() != moment, "the slider chooses the moment")
    theme = page.evaluate("document.documentElement.dataset.theme")
    page.keyboard.press("t")
    check(page.evaluate("document.documentElement.dataset.theme") != theme, "t changes the theme")

    check(page.evaluate("fetch('/api/runs/0/stop', {method: 'POST'}).then(r => r.status)") == 403, "a viewer stops nothing")
    other = context.new_page()
    check(other.goto(f"http://evil.example:{address.port}/").status == 421, "another name for this host is refused")
    check(other.goto(second.replace("127.0.0.1", "evil.example")).status == 421, "its login too")
    evil = browser.new_context().new_page()
    evil.route("http://elsewhere.example/", lambda r: r.fulfill(body="<p>elsewhere", content_type="text/html"))
    evil.goto("http://elsewhere.example/")
    ask = f"fetch('http://{address.netloc}/api/runs', {{credentials: 'include'}}).then(() => 'read', () => 'refused')"
    check(evil.evaluate(ask) == "refused", "another page reads nothing")
    heap = page.evaluate("performance.memory.usedJSHeapSize")
    check(not wrong, "errors in the console: " + "; ".join(wrong))
    print(json.dumps({"first_paint_ms": paint, "bytes": size, "heap_bytes": heap}))
    browser.close()
