package reward

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/lfactor/lfactor/configs"
)

// service asks a service for each answer.
var _ = Register(Kind{Name: "http", Doc: "what a POST to reward.url answers, {reward: NUMBER}, for a JSON object " +
	"{prompt, answer, record}", Reads: []string{"url"}, New: func(c *configs.Reward) (Func, error) {
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("reward.url is %q, and no address that begins with http:// or https://", c.URL)
	}
	return func(ctx context.Context, a *Answer) (float64, error) { return post(ctx, c.URL, a) }, nil
}})

func post(ctx context.Context, to string, a *Answer) (float64, error) {
	in, err := json.Marshal(asked{a.Prompt, a.Text, a.Record})
	if err != nil {
		return 0, err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(in))
	if err != nil {
		return 0, err
	}
	q.Header.Set("Content-Type", "application/json")
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		return 0, err
	}
	defer r.Body.Close() //nolint:errcheck // it is only read
	b, err := io.ReadAll(io.LimitReader(r.Body, outputMost))
	if err != nil {
		return 0, err
	}
	var v struct {
		Reward *float64 `json:"reward"`
	}
	if r.StatusCode != http.StatusOK || json.Unmarshal(b, &v) != nil || v.Reward == nil {
		return 0, fmt.Errorf("%s answers %s with %.80q, and not {\"reward\": NUMBER}", to, r.Status, b)
	}
	return *v.Reward, nil
}
