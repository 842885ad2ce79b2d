package serve

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLatencies: each answer waits, begins and ends once, and has an interval fewer than tokens; buckets are cumulative,
// and refused requests are in none.
func TestLatencies(t *testing.T) {
	_, url := served(t, Options{})
	code, _ := post(t, url+"/v1/completions", `{"model": "words", "prompt": "w5", "max_tokens": "a"}`)
	require.Equal(t, 400, code)
	code, _ = post(t, url+"/v1/completions", `{"model": "words", "prompt": "w5", "n": 2, "max_tokens": 4, "ignore_eos": true}`)
	require.Equal(t, 200, code)
	r, err := http.Get(url + "/metrics")
	require.NoError(t, err)
	b, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	for name, n := range map[string]string{"request_queue_time": "2", "time_to_first_token": "2", "inter_token_latency": "6",
		"e2e_request_latency": "2"} {
		require.Regexp(t, `(?m)^lfactor_`+name+`_seconds_count `+n+`$`, string(b))
		require.Regexp(t, `(?m)^lfactor_`+name+`_seconds_bucket\{le="\+Inf"\} `+n+`$`, string(b))
		require.Contains(t, string(b), "# TYPE lfactor_"+name+"_seconds histogram\n")
	}

	h := Histogram{Bounds: []float64{0.5, 2}}
	for _, d := range []time.Duration{0, 500 * time.Millisecond, time.Second, time.Minute} {
		h.Add(d)
	}
	var text strings.Builder
	h.Export(&text, "x", "y.")
	require.Equal(t, `x_bucket{le="0.5"} 2 x_bucket{le="2"} 3 x_bucket{le="+Inf"} 4 x_sum 61.5 x_count 4`,
		strings.Join(regexp.MustCompile(`(?m)^x.*$`).FindAllString(text.String(), -1), " "))
}
