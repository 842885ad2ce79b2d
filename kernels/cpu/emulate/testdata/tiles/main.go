// Command tiles uses AMX in the ways that a tracer could get wrong. Its argument says which; it prints what went wrong.
package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
)

func loadConfig(c *[64]byte)
func storeConfig(c *[64]byte)
func load(v *[1024]byte)
func store(v *[1024]byte)
func release()
func undefined()

// config has tile 0 with n rows of 64 bytes.
func config(n int) (c [64]byte) {
	c[0], c[16], c[48] = 1, 64, byte(n)
	return c
}

func check(ok bool, format string, a ...any) {
	if !ok {
		fmt.Printf(format+"\n", a...)
		os.Exit(1)
	}
}

// checkNone expects no tiles.
func checkNone() {
	now := [64]byte{5: 1}
	storeConfig(&now)
	check(now == [64]byte{}, "a thread begins with configuration %v", now)
}

// threads gives each thread tiles of its own, all at once, and looks whether they are still there when all have theirs.
func threads() {
	const n = 6
	var have, released, done sync.WaitGroup
	have.Add(n)
	released.Add(n / 2)
	for i := range n {
		done.Go(func() {
			runtime.LockOSThread() // without unlocking: the thread ends with the goroutine
			checkNone()
			c, now := config(i+1), [64]byte{}
			loadConfig(&c)
			var v, w [1024]byte
			for j := range v {
				v[j] = byte(j * (i + 3))
			}
			load(&v)
			have.Done()
			have.Wait()
			if i%2 == 0 {
				release()
				released.Done()
				return
			}
			released.Wait()
			store(&w)
			clear(v[64*(i+1):])
			check(v == w, "thread %d has other tiles", i)
			storeConfig(&now)
			check(now == c, "thread %d has configuration %v, want %v", i, now, c)
		})
	}
	done.Wait()
}

// signals gets some of its own: one by handler, one as a panic, one that stops it until its child lets it go on (state t is T in the eyes of a tracer).
func signals() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR1)
	_ = syscall.Kill(os.Getpid(), syscall.SIGUSR1)
	<-c
	defer func() {
		check(recover() != nil, "no panic")
		os.Exit(7)
	}()
	stopped := exec.Command("sh", "-c", `kill -STOP $0; while ! grep -q "^State:.[Tt]" /proc/$0/status; do :; done; kill -CONT $0`, fmt.Sprint(os.Getpid()))
	out, err := stopped.CombinedOutput()
	check(err == nil, "%v: %s", err, out)
	var p *int
	fmt.Println(*p)
}

// The first thread has tiles of its own too.
func init() { runtime.LockOSThread() }

func main() {
	checkNone()
	switch os.Args[1] {
	case "threads":
		threads()
	case "child": // a thread that is not the first starts it
		self, err := os.Executable()
		check(err == nil, "%v", err)
		out, err := exec.Command(self, "threads").CombinedOutput()
		check(err == nil && len(bytes.TrimSpace(out)) == 0, "%v: %s", err, out)
	case "exec":
		c := config(16)
		loadConfig(&c)
		check(syscall.Exec("/proc/self/exe", []string{"tiles", "threads"}, nil) == nil, "exec")
	case "signals":
		signals()
	case "undefined":
		undefined()
	case "refused":
		var v [1024]byte
		store(&v)
	case "fault":
		c := config(16)
		loadConfig(&c)
		load(nil)
	case "killed":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}
