package machine

import (
	"net"
	"time"
)

// keepAlive asks an idle peer whether it is there, so that it is given up after about as long.
func keepAlive(after time.Duration) net.KeepAliveConfig {
	second := max(time.Second, after/2) // the system counts whole seconds
	return net.KeepAliveConfig{Enable: true, Idle: second, Interval: second, Count: 1}
}
