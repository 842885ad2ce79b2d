package machine

import (
	"math"
	"net"
	"time"
)

// KeepAsking has a connection that may be idle ask its peer whether it is there, once a second, and fail when it has heard
// nothing for a while. Without it, a connection asks nothing: one that has something on its way knows by that. So one
// question that gets lost says nothing.
func KeepAsking(c net.Conn, after time.Duration) error {
	return ask(c, after, net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second,
		Count: int(max(1, after/time.Second-1))})
}

// GiveUpAfter lets a connection fail when its peer has acknowledged nothing of what was sent for a while. By itself TCP
// tries for a quarter of an hour. Connections of another kind are left as they are.
func GiveUpAfter(c net.Conn, after time.Duration) error { return ask(c, after, net.KeepAliveConfig{}) }

// Traffic is what a connection of TCP has carried: how long it has had something on its way that was not acknowledged
// yet, and how long of that it was the receiver that had no room; bytes that were acknowledged; segments that were sent,
// how many of them again, and how many of these had come before; and after how long one that nobody acknowledges is sent
// again.
type Traffic struct {
	Busy, Full         time.Duration
	Acked, Sent, Again int64
	Twice              int64
	Retry              time.Duration
}

// CutAfter is how long a peer may leave everything unacknowledged before a connection between processes counts as cut, in
// a network that loses nothing. Beats notice a process that is gone; this is for a network that is cut between two others.
const CutAfter = 2 * time.Second

// IdleAfter is the same of one that another process has opened, which notices first.
const IdleAfter = 10 * time.Second

// Patience is how long a connection waits for an acknowledgement until its peer counts as gone: for least, or for so
// many tries that one in ten thousand is given up by mistake where a share of segments gets lost, each way; twenty
// seconds at most. Tries follow each other after retry, and after twice the time each time.
func Patience(least, retry time.Duration, lost float64) time.Duration {
	const most = 20 * time.Second
	tries := 2 // that fail where nothing gets lost: a way that became longer
	if either := 1 - (1-lost)*(1-lost); lost > 0.005 {
		tries += int(math.Ceil(math.Log(1e-4) / math.Log(min(either, 0.9))))
	}
	wait, each := time.Duration(0), retry
	for range tries {
		if wait, each = wait+each, 2*each; wait >= most {
			return most
		}
	}
	return max(least, wait)
}
