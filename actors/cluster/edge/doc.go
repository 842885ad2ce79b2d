// Package edge carries the edges between the processes of a run over TCP.
//
// # What it is
//
// One connection with mutual TLS 1.3 an edge. A [Conn] gathers what is written until it is flushed:
// headers and small tensors share TLS records, and records share system calls of 256 KiB, which is 1.5
// times as fast as a tls.Conn by itself. A [Listener] accepts connections whose [Greeting] names the job,
// who dials and who is meant, and hands them to actors/host.
//
// # What always holds
//
//   - Who is not a node of the cluster's authority, or greets for another job, is refused before it can
//     send a message.
//   - Half-open connections are few and short, whatever a stranger sends; refusals are counted and said
//     once a second at most.
//   - No session is resumed, so that an expired certificate ends with its connection.
//
// # Where to begin
//
// edge.go is the package; lossy.go and udp.go take an edge off a TCP that loses much; package trust has the certificates.
package edge
