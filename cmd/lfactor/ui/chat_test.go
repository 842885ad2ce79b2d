package ui

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
)

// TestChatPage talks to two served models on the page of one of them in headless Chromium, as a person does:
// answers side by side, what tokens were worth, and a pair that is kept. LFACTOR_CHAT names another model than the small
// one of tests.
func TestChatPage(t *testing.T) {
	if !*clitest.Long {
		t.Skip("skipped: wants chromium; -long runs it")
	}
	dir := t.TempDir()
	model := func(name string) string {
		from := os.Getenv("LFACTOR_CHAT")
		if from == "" {
			from = filepath.Join("../../../actors/run/testdata/preference", name)
		}
		to := filepath.Join(dir, name)
		require.NoError(t, os.CopyFS(to, os.DirFS(from)))
		if os.Getenv("LFACTOR_CHAT") == "" {
			var c map[string]any
			b, err := os.ReadFile(filepath.Join(to, "tokenizer_config.json"))
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(b, &c))
			c["chat_template"] = "{% for m in messages %}w3 {{ m['content'] }} {% endfor %}w4 "
			b, err = json.Marshal(c)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(to, "tokenizer_config.json"), b, 0o644))
		}
		return to
	}
	serve := func(args ...string) string {
		s := start(t, dir, false, append([]string{"serve", "--port", "0", "-o", "json"}, args...)...)
		require.True(t, s.lines.Scan())
		var at struct{ URL string }
		require.NoError(t, json.Unmarshal(s.lines.Bytes(), &at))
		return strings.TrimSuffix(at.URL, "/v1")
	}
	other := serve(model("reference"), "--name", "other<b>")
	here := serve(model("policy"), "--pairs", "pairs.jsonl", "--beside", other)
	p := startBrowser(t, "").Open(t, 1200, 800)
	require.Equal(t, 200, p.Go(here+"/"))
	talk(t, p, filepath.Join(dir, "pairs.jsonl"))
	var hacked bool
	p.Eval(`Boolean(window.hacked) || document.querySelectorAll("main img, main b").length > 0`, &hacked)
	require.False(t, hacked, "texts and names are no HTML")
	require.Empty(t, p.Wrong(), "errors in the console")
}

// talk asks both models, and keeps a pair of their answers in a file.
func talk(t *testing.T, p *Page, file string) {
	p.Until("both models may be asked", `document.querySelectorAll("#models select").length === 2`)
	p.Eval(`document.querySelector("#settings summary").click()`, nil)
	shot(t, p, "chat-settings")
	p.Eval(`document.querySelector("#settings summary").click();
		document.querySelector("#max_tokens").value = 12; document.querySelector("#seed").value = 5;
		document.querySelector("#temperature").value = 1`, nil)
	say := func(text string) {
		p.Eval(fmt.Sprintf(`document.querySelector("#text").value = %q;
			document.querySelector("#text").dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" }))`, text), nil)
	}
	say("w5 w6 <img src=x onerror='window.hacked=1'>")
	p.Until("both have answered and may be chosen", `document.querySelectorAll(".answer > button").length === 2`)
	var answers []string
	p.Eval(`[...document.querySelectorAll(".answer .text")].map((x) => x.textContent)`, &answers)
	p.Until("pieces say what they were worth", `document.querySelector(".text span").told.includes("%")`)
	var box struct{ X, Y, Width, Height float64 }
	p.Eval(`document.querySelector(".text span").getBoundingClientRect().toJSON()`, &box)
	p.Mouse("mouseMoved", box.X+box.Width/2, box.Y+box.Height/2)
	p.Until("the tip shows it", `!document.querySelector("#tip").hidden && document.querySelector("#tip").innerText.includes("%")`)
	p.Eval(`document.querySelector("#tint").click()`, nil)
	shot(t, p, "chat")
	p.Eval(`document.querySelectorAll(".answer > button")[1].click()`, nil)
	p.Until("the pair is kept", `document.querySelector("#note").innerText === "The pair is kept."`)
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	var pair struct {
		Prompt, Chosen, Rejected []struct{ Role, Content string }
	}
	require.NoError(t, json.Unmarshal(b, &pair))
	require.Equal(t, []string{answers[1], answers[0]}, []string{pair.Chosen[0].Content, pair.Rejected[0].Content})
	require.Equal(t, "user", pair.Prompt[0].Role)
	say("w7")
	p.Until("the conversation goes on", `document.querySelectorAll(".turn").length === 2 && !document.querySelector("#send").disabled`)
	p.Dark(true)
	p.Size(390, 760)
	p.Until("nothing is wider than a phone", `document.documentElement.scrollWidth <= 390`)
	shot(t, p, "chat-narrow-dark")
}
