package main

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// API keys and versions that the generator speaks. OffsetCommit 7 is the newest version before flexible encoding; Kafka's
// published figures of the baseline were taken with it.
const (
	apiOffsetCommit, versionOffsetCommit         = 8, 7
	apiOffsetFetch, versionOffsetFetch           = 9, 5
	apiFindCoordinator, versionFindCoordinator   = 10, 1
	apiJoinGroup, versionJoinGroup               = 11, 3
	apiHeartbeat, versionHeartbeat               = 12, 2
	apiSyncGroup, versionSyncGroup               = 14, 2
	apiSaslHandshake, versionSaslHandshake       = 17, 1
	apiSaslAuthenticate, versionSaslAuthenticate = 36, 0

	apiConsumerGroupHeartbeat, versionConsumerGroupHeartbeat = 68, 1

	clientID    = "loadgen"
	maxResponse = 16 << 20
)

var errShort = errors.New("answer is shorter than its fields")

// kafkaError is an error code in an answer.
type kafkaError int16

func (e kafkaError) Error() string { return fmt.Sprintf("Kafka error %d", int16(e)) }

// retriable: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE and COORDINATOR_LOAD_IN_PROGRESS pass by themselves.
func (e kafkaError) retriable() bool { return e == 14 || e == 15 || e == 16 }

// encoder builds a request frame; frame puts the length in front.
type encoder struct{ b []byte }

func (e *encoder) int16(v int16)   { e.b = binary.BigEndian.AppendUint16(e.b, uint16(v)) }
func (e *encoder) int32(v int32)   { e.b = binary.BigEndian.AppendUint32(e.b, uint32(v)) }
func (e *encoder) int64(v int64)   { e.b = binary.BigEndian.AppendUint64(e.b, uint64(v)) }
func (e *encoder) string(v string) { e.int16(int16(len(v))); e.b = append(e.b, v...) }
func (e *encoder) null()           { e.int16(-1) }

// newRequest starts a frame with request header version 1; the correlation id is at byte 8.
func newRequest(key, version int16) *encoder {
	e := &encoder{b: make([]byte, 4, 256)}
	e.int16(key)
	e.int16(version)
	e.int32(0)
	e.string(clientID)
	return e
}

func (e *encoder) frame() []byte {
	binary.BigEndian.PutUint32(e.b, uint32(len(e.b)-4))
	return e.b
}

// decoder reads fields; after a field that is not there, bad is set and every field reads as zero.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) take(n int) []byte {
	if n < 0 || n > len(d.b) {
		d.bad, d.b = true, nil
		return make([]byte, max(n, 0))
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) int16() int16 { return int16(binary.BigEndian.Uint16(d.take(2))) }
func (d *decoder) int32() int32 { return int32(binary.BigEndian.Uint32(d.take(4))) }
func (d *decoder) string() string {
	if n := d.int16(); n > 0 {
		return string(d.take(int(n)))
	}
	return ""
}

// connection is one connection to a broker, with one request in flight at a time.
type connection struct {
	net.Conn
	reader      *bufio.Reader
	correlation uint32
	answer      []byte
	timeout     time.Duration
}

// dial connects, in plain or, with a login, by TLS. Which server it is does not matter here, so no certificate is checked.
func dial(address, login string, timeout time.Duration) (*connection, error) {
	c, err := net.DialTimeout("tcp", address, timeout)
	if err != nil {
		return nil, err
	}
	if login == "" {
		return newConnection(c, timeout), nil
	}
	secured := newConnection(tls.Client(c, &tls.Config{InsecureSkipVerify: true}), timeout)
	if err := secured.logIn(login); err != nil {
		secured.Close()
		return nil, err
	}
	return secured, nil
}

// logIn says who the client is, as USER:PASSWORD has it, by SASL/PLAIN.
func (c *connection) logIn(login string) error {
	user, password, _ := strings.Cut(login, ":")
	handshake := newRequest(apiSaslHandshake, versionSaslHandshake)
	handshake.string("PLAIN")
	token := newRequest(apiSaslAuthenticate, versionSaslAuthenticate)
	text := "\x00" + user + "\x00" + password
	token.int32(int32(len(text)))
	token.b = append(token.b, text...)
	for _, request := range []*encoder{handshake, token} {
		body, err := c.call(request.frame())
		if err != nil {
			return err
		}
		if code := kafkaError((&decoder{b: body}).int16()); code != 0 {
			return code
		}
	}
	return nil
}

func newConnection(c net.Conn, timeout time.Duration) *connection {
	return &connection{Conn: c, reader: bufio.NewReaderSize(c, 4096), timeout: timeout}
}

// call sends the frame under a new correlation id and returns the answer's body, which is valid until the next call.
func (c *connection) call(frame []byte) ([]byte, error) {
	c.correlation++
	binary.BigEndian.PutUint32(frame[8:], c.correlation)
	if err := c.SetDeadline(time.Now().Add(c.timeout)); err != nil {
		return nil, err
	}
	if _, err := c.Write(frame); err != nil {
		return nil, err
	}
	var head [8]byte
	if _, err := io.ReadFull(c.reader, head[:]); err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(head[:])
	if length < 4 || length > maxResponse {
		return nil, fmt.Errorf("answer of %d bytes", length)
	}
	if got := binary.BigEndian.Uint32(head[4:]); got != c.correlation {
		return nil, fmt.Errorf("answer with correlation id %d, expected %d", got, c.correlation)
	}
	if cap(c.answer) < int(length) {
		c.answer = make([]byte, length)
	}
	body := c.answer[:length-4]
	_, err := io.ReadFull(c.reader, body)
	return body, err
}

// findCoordinator gives the address of the group's coordinator.
func (c *connection) findCoordinator(group string) (string, error) {
	request := newRequest(apiFindCoordinator, versionFindCoordinator)
	request.string(group)
	request.b = append(request.b, 0) // key type: group
	body, err := c.call(request.frame())
	if err != nil {
		return "", err
	}
	d := decoder{b: body}
	d.int32() // throttle time
	code := kafkaError(d.int16())
	d.string() // message
	d.int32()  // node id
	host, port := d.string(), d.int32()
	if d.bad {
		return "", errShort
	}
	if code != 0 {
		return "", code
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port))), nil
}

// commitRequest is an OffsetCommit of a simple group (no members) for partitions 0..n-1 of the topic. The positions of the
// offsets in the frame are returned, so that each commit writes new ones without encoding again.
func commitRequest(group, topic string, partitions int) (frame []byte, offsets []int) {
	e := newRequest(apiOffsetCommit, versionOffsetCommit)
	e.string(group)
	e.int32(-1) // generation: none
	e.string("")
	e.null() // group instance id
	e.int32(1)
	e.string(topic)
	e.int32(int32(partitions))
	for p := range partitions {
		e.int32(int32(p))
		offsets = append(offsets, len(e.b))
		e.int64(0)
		e.int32(-1) // leader epoch
		e.string("")
	}
	return e.frame(), offsets
}

// checkCommit gives the first error of an OffsetCommit answer, which must name every partition.
func checkCommit(body []byte, partitions int) error {
	d := decoder{b: body}
	d.int32() // throttle time
	answered := 0
	for range d.int32() {
		d.string()
		for range d.int32() {
			d.int32()
			if code := kafkaError(d.int16()); code != 0 {
				return code
			}
			answered++
			if d.bad {
				return errShort
			}
		}
	}
	if d.bad || answered != partitions {
		return fmt.Errorf("answer names %d of %d partitions", answered, partitions)
	}
	return nil
}

// fetchRequest is an OffsetFetch of partitions 0..n-1 of the topic, or of all that the group has committed when it is "".
func fetchRequest(group, topic string, partitions int) []byte {
	e := newRequest(apiOffsetFetch, versionOffsetFetch)
	e.string(group)
	if topic == "" {
		e.int32(-1)
		return e.frame()
	}
	e.int32(1)
	e.string(topic)
	e.int32(int32(partitions))
	for p := range partitions {
		e.int32(int32(p))
	}
	return e.frame()
}

// checkFetch gives the first error of an OffsetFetch answer, which must have an offset of every partition.
func checkFetch(body []byte, partitions int) error {
	d := decoder{b: body}
	d.int32() // throttle time
	found := 0
	for range d.int32() {
		d.string()
		for range d.int32() {
			d.int32()
			offset := int64(binary.BigEndian.Uint64(d.take(8)))
			d.int32() // leader epoch
			d.string()
			if code := kafkaError(d.int16()); code != 0 {
				return code
			}
			if d.bad {
				return errShort
			}
			if offset >= 0 {
				found++
			}
		}
	}
	if code := kafkaError(d.int16()); code != 0 {
		return code
	}
	if d.bad || found != partitions {
		return fmt.Errorf("answer has offsets of %d of %d partitions", found, partitions)
	}
	return nil
}

// joinRequest is that of a member, or of a new one when it has no id: up to version 3 it gets it in the answer. A member
// whose metadata has changed makes its group rebalance.
func joinRequest(group, member string, sessionTimeout int32, metadata uint64) []byte {
	e := newRequest(apiJoinGroup, versionJoinGroup)
	e.string(group)
	e.int32(sessionTimeout)
	e.int32(sessionTimeout) // rebalance timeout
	e.string(member)
	e.string("consumer")
	e.int32(1)
	e.string("range")
	e.int32(8)
	e.int64(int64(metadata))
	return e.frame()
}

// joined is the answer to a join. members: how many there are, which only the leader is told.
type joined struct {
	member     string
	generation int32
	members    int
}

func readJoin(body []byte) (joined, error) {
	d := decoder{b: body}
	d.int32() // throttle time
	code := kafkaError(d.int16())
	answer := joined{generation: d.int32()}
	d.string() // protocol
	d.string() // leader
	answer.member = d.string()
	answer.members = int(d.int32())
	if d.bad {
		return joined{}, errShort
	}
	if code != 0 {
		return joined{}, code
	}
	return answer, nil
}

func syncRequest(group, member string, generation int32) []byte {
	e := newRequest(apiSyncGroup, versionSyncGroup)
	e.string(group)
	e.int32(generation)
	e.string(member)
	e.int32(1)
	e.string(member)
	e.int32(0) // assignment of no bytes
	return e.frame()
}

func heartbeatRequest(group, member string, generation int32) []byte {
	e := newRequest(apiHeartbeat, versionHeartbeat)
	e.string(group)
	e.int32(generation)
	e.string(member)
	return e.frame()
}

// checkError of an answer that begins with throttle time and error code.
func checkError(body []byte) error {
	d := decoder{b: body}
	d.int32()
	code := kafkaError(d.int16())
	if d.bad {
		return errShort
	}
	if code != 0 {
		return code
	}
	return nil
}
