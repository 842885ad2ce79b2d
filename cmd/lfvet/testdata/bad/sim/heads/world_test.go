// Package heads is a model that only its tests run: it is held to the rules of protocols all the same.
package heads

import "time"

// Date is when it is.
func Date() time.Time { return time.Now() }

func hosts(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}
