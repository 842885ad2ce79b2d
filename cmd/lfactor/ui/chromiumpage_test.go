package ui

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Page is a page with a session of its own: cookies and storage are those of no other.
type Page struct {
	t       testing.TB
	b       *Browser
	session string
	context string

	mu     sync.Mutex
	status map[string]int // by address, as answered last
	wrong  []string
}

// Open makes a page of so many pixels.
func (b *Browser) Open(t testing.TB, width, height int) *Page {
	t.Helper()
	var c struct {
		ID string `json:"browserContextId"`
	}
	require.NoError(t, b.call("", "Target.createBrowserContext", nil, &c))
	return b.open(t, c.ID, width, height)
}

// Beside makes another page with the cookies of this one.
func (p *Page) Beside() *Page { return p.b.open(p.t, p.context, 800, 600) }

func (b *Browser) open(t testing.TB, context string, width, height int) *Page {
	var target struct {
		ID string `json:"targetId"`
	}
	require.NoError(t, b.call("", "Target.createTarget", map[string]any{"url": "about:blank",
		"browserContextId": context}, &target))
	var s struct {
		ID string `json:"sessionId"`
	}
	require.NoError(t, b.call("", "Target.attachToTarget", map[string]any{"targetId": target.ID, "flatten": true}, &s))
	p := &Page{t: t, b: b, session: s.ID, context: context, status: map[string]int{}}
	b.mu.Lock()
	b.pages[s.ID] = p
	b.mu.Unlock()
	for _, m := range []string{"Page.enable", "Runtime.enable", "Log.enable", "Network.enable", "Performance.enable"} {
		p.do(m, nil, nil)
	}
	p.Size(width, height)
	return p
}

func (p *Page) do(method string, params, result any) {
	p.t.Helper()
	require.NoError(p.t, p.b.call(p.session, method, params, result))
}

// heard notes the codes of answers and what went wrong.
func (p *Page) heard(m reply) {
	var e struct {
		Response struct {
			URL    string `json:"url"`
			Status int    `json:"status"`
		} `json:"response"`
		Details struct {
			Text      string `json:"text"`
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
		Type  string            `json:"type"`
		Args  []json.RawMessage `json:"args"`
		Entry struct {
			Level, Text, URL, Source string
		} `json:"entry"`
	}
	if json.Unmarshal(m.Params, &e) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case m.Method == "Network.responseReceived":
		p.status[e.Response.URL] = e.Response.Status
	case m.Method == "Runtime.exceptionThrown":
		p.wrong = append(p.wrong, e.Details.Text+" "+e.Details.Exception.Description)
	case m.Method == "Runtime.consoleAPICalled" && e.Type == "error":
		p.wrong = append(p.wrong, fmt.Sprintf("%s", e.Args))
	case m.Method == "Log.entryAdded" && e.Entry.Level == "error":
		p.wrong = append(p.wrong, e.Entry.Text+" "+e.Entry.URL)
	}
}

// Wrong are the errors in the page's console since it was asked last.
func (p *Page) Wrong() (out []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out, p.wrong = p.wrong, nil
	return out
}

// Go opens an address, and gives the code that its server answers with.
func (p *Page) Go(url string) int {
	p.t.Helper()
	var g struct {
		Error  string `json:"errorText"`
		Loader string `json:"loaderId"`
	}
	p.mu.Lock()
	clear(p.status)
	p.mu.Unlock()
	p.do("Page.navigate", map[string]any{"url": url}, &g)
	if g.Error != "" && g.Error != "net::ERR_HTTP_RESPONSE_CODE_FAILURE" {
		require.Fail(p.t, g.Error, url)
	}
	p.Until("the page is loaded", `document.readyState === "complete" && location.href !== "about:blank"`)
	var at string
	p.Eval(`location.href`, &at)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, u := range []string{url, at} {
		if s, ok := p.status[u]; ok && s/100 != 3 {
			return s
		}
	}
	return p.status[at]
}

// Eval decodes what an expression is, or what its promise gives.
func (p *Page) Eval(expression string, out any) {
	p.t.Helper()
	require.NoError(p.t, p.eval(expression, out))
}

func (p *Page) eval(expression string, out any) error {
	var r struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Details *struct {
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}
	err := p.b.call(p.session, "Runtime.evaluate", map[string]any{"expression": expression,
		"returnByValue": true, "awaitPromise": true}, &r)
	if err == nil && r.Details != nil {
		err = fmt.Errorf("%s: %s", expression, r.Details.Exception.Description)
	}
	if err != nil || out == nil {
		return err
	}
	return json.Unmarshal(r.Result.Value, out)
}

// Until waits for an expression to hold, asking each 50 ms in the page.
func (p *Page) Until(what, expression string) {
	p.t.Helper()
	var ok bool
	end := time.Now().Add(patience)
	var err error
	for tick := time.NewTicker(50 * time.Millisecond); ; <-tick.C {
		if err = p.eval("Boolean("+expression+")", &ok); err == nil && ok {
			tick.Stop()
			return
		}
		if time.Now().After(end) {
			break
		}
	}
	var text string
	_ = p.eval(`document.body.innerText.slice(0, 3000)`, &text) // for whoever reads that it failed
	require.Fail(p.t, "does not hold: "+what, "%s\n%v\n%s", expression, err, text)
}

// Mouse sends events of the mouse to points of the window, in CSS pixels.
func (p *Page) Mouse(kind string, x, y float64) {
	p.t.Helper()
	p.do("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": x, "y": y, "button": "left",
		"buttons": 1, "clickCount": 1}, nil)
}

// Drag presses at one point and lets go at another.
func (p *Page) Drag(x1, y1, x2, y2 float64) {
	p.t.Helper()
	p.Mouse("mouseMoved", x1, y1)
	p.Mouse("mousePressed", x1, y1)
	for k := range 4 {
		at := float64(k+1) / 4
		p.Mouse("mouseMoved", x1+(x2-x1)*at, y1+(y2-y1)*at)
	}
	p.Mouse("mouseReleased", x2, y2)
}

// Key presses a key that writes one character.
func (p *Page) Key(key string) {
	p.t.Helper()
	p.do("Input.dispatchKeyEvent", map[string]any{"type": "keyDown", "key": key, "text": key}, nil)
	p.do("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key}, nil)
}

// Size makes the window so large.
func (p *Page) Size(width, height int) {
	p.t.Helper()
	p.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height,
		"deviceScaleFactor": 1, "mobile": false}, nil)
}

// Dark says that the user likes it dark, or does not.
func (p *Page) Dark(dark bool) {
	p.t.Helper()
	value := map[bool]string{true: "dark", false: "light"}[dark]
	p.do("Emulation.setEmulatedMedia",
		map[string]any{"features": []any{map[string]any{"name": "prefers-color-scheme", "value": value}}}, nil)
}

// Shot writes what the window shows as a PNG.
func (p *Page) Shot(path string) {
	p.t.Helper()
	var s struct {
		Data string `json:"data"`
	}
	p.do("Page.captureScreenshot", map[string]any{"format": "png"}, &s)
	png, err := base64.StdEncoding.DecodeString(s.Data)
	require.NoError(p.t, err)
	require.NoError(p.t, os.WriteFile(path, png, 0o644))
}

// Heap is how many bytes the page's scripts hold after their rubbish was collected.
func (p *Page) Heap() (used float64) {
	p.t.Helper()
	p.do("HeapProfiler.collectGarbage", nil, nil)
	var m struct {
		Metrics []struct {
			Name  string  `json:"name"`
			Value float64 `json:"value"`
		} `json:"metrics"`
	}
	p.do("Performance.getMetrics", nil, &m)
	for _, x := range m.Metrics {
		if x.Name == "JSHeapUsedSize" {
			used = x.Value
		}
	}
	require.Positive(p.t, used)
	return used
}
