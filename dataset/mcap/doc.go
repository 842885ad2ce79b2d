// Package mcap reads recordings of robots in files of MCAP, as ROS 2 writes its bags: which topics there
// are, and the messages of each by their times, whose numbers, texts and pictures it decodes by the
// definitions that lie in the file. Files may be damaged in any way: that is an error, and nothing else.
// Sources: mcap.dev/spec; OMG DDS interoperability protocol, chapter 10 (CDR); docs.ros.org, "About ROS 2
// interfaces".
package mcap
