package growth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Ask is what a server is asked once it answers.
type Ask struct {
	Ready string          // path that tells that it answers
	Path  string          // what is asked
	Body  string          // posted; "" asks by GET
	Times func(n int) int // how often at size n
}

// patience is for a server to answer its first request.
const patience = 2 * time.Minute

// of starts a server on a free port, whose place in its words is {port}, asks it, and lets it end.
func (a *Ask) of(ctx context.Context, cmd *exec.Cmd, n int) error {
	port, err := free()
	if err != nil {
		return err
	}
	for i, word := range cmd.Args {
		cmd.Args[i] = strings.ReplaceAll(word, "{port}", strconv.Itoa(port))
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	at := fmt.Sprintf("http://127.0.0.1:%d", port)
	err = a.wait(ctx, at)
	for i := 0; err == nil && i < a.Times(n); i++ {
		err = a.once(ctx, at+strings.ReplaceAll(a.Path, "{i}", strconv.Itoa(i)), a.Body)
	}
	if err != nil {
		return errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return errors.Join(err, cmd.Wait())
	}
	var ended *exec.ExitError
	if err = cmd.Wait(); errors.As(err, &ended) && ended.ExitCode() == 130 {
		return nil
	}
	return err
}

// wait asks until a server answers.
func (a *Ask) wait(ctx context.Context, at string) (err error) {
	for began := time.Now(); time.Since(began) < patience && ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		if err = a.once(ctx, at+a.Ready, ""); err == nil {
			return nil
		}
	}
	return errors.Join(err, ctx.Err())
}

func (a *Ask) once(ctx context.Context, at, body string) error {
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(ctx, method, at, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.200s", at, answer.Status, text)
	}
	return err
}

// free is a port of this host that nobody listens to.
func free() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
