package agent

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/agent/decide"
)

// EnvNotice is the environment variable with the file, or the address of a cloud's, that says that this host is taken back soon.
const EnvNotice = "LFACTOR_NOTICE"

// awsTokens is where AWS gives the token that its address wants.
const awsTokens = "http://169.254.169.254/latest/api/token"

// noticeLeast is the time that a notice gives which names none: Google's and Azure's.
const noticeLeast = 30 * time.Second

// heardFrom says, unless ctx ends before, when the host is taken back.
func heardFrom(ctx context.Context, at string, out chan<- decide.Leave) {
	for tick := time.NewTicker(time.Second); ctx.Err() == nil; <-tick.C {
		if within, ok := noticed(read(ctx, at), time.Now()); ok {
			out <- decide.Leave{Within: within, Why: fmt.Sprintf("it is taken back in %v, says %s", within.Round(time.Second), at)}
			return
		}
	}
}

// read is what a file or an address has, "" for nothing.
func read(ctx context.Context, at string) string {
	if !strings.HasPrefix(at, "http") {
		text, _ := os.ReadFile(at) // it is not there before there is a notice
		return string(text)
	}
	h := http.Header{"Metadata": {"true"}, "Metadata-Flavor": {"Google"}} // as Azure and Google want it
	if strings.HasPrefix(at, "http://169.254.169.254/latest/") {
		h.Set("X-aws-ec2-metadata-token", ask(ctx, "PUT", awsTokens, http.Header{"X-Aws-Ec2-Metadata-Token-Ttl-Seconds": {"60"}}))
	}
	return ask(ctx, "GET", at, h)
}

func ask(ctx context.Context, method, url string, h http.Header) string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return ""
	}
	q.Header = h
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		return ""
	}
	defer r.Body.Close()
	text, err := io.ReadAll(io.LimitReader(r.Body, 1<<16))
	if err != nil || r.StatusCode != http.StatusOK { // there is no such page before there is a notice
		return ""
	}
	return string(text)
}

// What Azure tells of: others of its events are pauses. And when: as AWS and Azure write it.
var (
	azureEnds  = regexp.MustCompile(`"(Preempt|Terminate|Reboot|Redeploy)"`)
	noticeTime = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT`)
)

// noticed reads a notice: AWS's action, Azure's events, Google's word, or a time. What names no time is noticeLeast away.
func noticed(text string, now time.Time) (within time.Duration, ok bool) {
	text = strings.TrimSpace(text)
	if text == "" || strings.EqualFold(text, "false") || strings.Contains(text, `"Events"`) && !azureEnds.MatchString(text) {
		return 0, false
	}
	for _, form := range []string{time.RFC3339, time.RFC1123} {
		if t, err := time.Parse(form, noticeTime.FindString(text)); err == nil {
			return max(time.Second, t.Sub(now)), true
		}
	}
	return noticeLeast, true
}
