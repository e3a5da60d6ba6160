package main

import (
	"encoding/binary"
	"errors"
	"net"
	"testing"
	"time"
)

// commitAnswer is the body of an OffsetCommit v7 answer for one topic with these error codes.
func commitAnswer(codes ...int16) []byte {
	e := &encoder{}
	e.int32(0)
	e.int32(1)
	e.string("t")
	e.int32(int32(len(codes)))
	for p, code := range codes {
		e.int32(int32(p))
		e.int16(code)
	}
	return e.b
}

func TestCheckCommitOfCompleteAnswerWithoutErrorsPasses(t *testing.T) {
	if err := checkCommit(commitAnswer(0, 0), 2); err != nil {
		t.Fatal(err)
	}
}

func TestCheckCommitOfErrorCodeGivesIt(t *testing.T) {
	var code kafkaError
	if err := checkCommit(commitAnswer(0, 16), 2); !errors.As(err, &code) || code != 16 || !code.retriable() {
		t.Fatalf("%v", err)
	}
}

func TestCheckCommitOfMissingPartitionFails(t *testing.T) {
	if err := checkCommit(commitAnswer(0), 2); err == nil {
		t.Fatal("a partition without an answer passed")
	}
}

func TestCheckCommitOfTruncatedAnswerFails(t *testing.T) {
	whole := commitAnswer(0, 0)
	for length := range whole {
		if err := checkCommit(whole[:length], 2); err == nil {
			t.Fatalf("%d of %d bytes passed", length, len(whole))
		}
	}
}

func TestCommitRequestOffsetsAreWhereTheyAreWritten(t *testing.T) {
	frame, offsets := commitRequest("g", "t", 3)
	if got := int(binary.BigEndian.Uint32(frame)); got != len(frame)-4 {
		t.Fatalf("length field %d of a frame of %d", got, len(frame))
	}
	for _, position := range offsets {
		if got := binary.BigEndian.Uint64(frame[position:]); got != 0 {
			t.Fatalf("at %d stands %d, not the offset", position, got)
		}
		if got := int32(binary.BigEndian.Uint32(frame[position+8:])); got != -1 {
			t.Fatalf("behind %d stands %d, not the leader epoch", position, got)
		}
	}
}

func TestPercentileIsNearestRank(t *testing.T) {
	sorted := []time.Duration{1 * time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond, 4 * time.Millisecond}
	for share, want := range map[float64]float64{0.001: 1, 0.5: 2, 0.51: 3, 0.99: 4} {
		if got := percentile(sorted, share); got != want {
			t.Errorf("percentile %v: %v, expected %v", share, got, want)
		}
	}
	if percentile(nil, 0.5) != 0 {
		t.Error("percentile of nothing is not 0")
	}
}

// serve answers every request on one connection, the body given by answer.
func serve(t *testing.T, answer func(correlation uint32) []byte) *connection {
	t.Helper()
	client, server := net.Pipe()
	go func() {
		defer server.Close()
		buffer := make([]byte, 4096)
		for {
			if _, err := server.Read(buffer); err != nil {
				return
			}
			if _, err := server.Write(answer(binary.BigEndian.Uint32(buffer[8:]))); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { client.Close() })
	return newConnection(client, time.Second)
}

func answerFrame(correlation uint32, body []byte) []byte {
	frame := binary.BigEndian.AppendUint32(nil, uint32(len(body)+4))
	return append(binary.BigEndian.AppendUint32(frame, correlation), body...)
}

func TestCallGivesTheBodyOfItsOwnAnswer(t *testing.T) {
	c := serve(t, func(correlation uint32) []byte { return answerFrame(correlation, commitAnswer(0)) })
	frame, _ := commitRequest("g", "t", 1)
	for range 3 {
		body, err := c.call(frame)
		if err != nil || checkCommit(body, 1) != nil {
			t.Fatalf("%v %v", body, err)
		}
	}
}

func TestCallWithAnswerToAnotherRequestFails(t *testing.T) {
	c := serve(t, func(correlation uint32) []byte { return answerFrame(correlation+1, nil) })
	frame, _ := commitRequest("g", "t", 1)
	if _, err := c.call(frame); err == nil {
		t.Fatal("an answer with another correlation id was taken")
	}
}

func TestCallWithAnswerOverTheLimitFails(t *testing.T) {
	c := serve(t, func(uint32) []byte { return []byte{0x7f, 0, 0, 0, 0, 0, 0, 1} })
	frame, _ := commitRequest("g", "t", 1)
	if _, err := c.call(frame); err == nil {
		t.Fatal("an answer of 2 GB was taken")
	}
}

func TestSameHashGivesOtherNamesWithTheJavaHashOfTheFirst(t *testing.T) {
	hash := func(name string) (h int32) {
		for _, c := range []byte(name) {
			h = 31*h + int32(c)
		}
		return h
	}
	names := map[string]bool{}
	for number := range 1000 {
		name := sameHash("bench-7", number)
		names[name] = true
		if hash(name) != hash(sameHash("bench-7", 0)) {
			t.Fatalf("%s hashes otherwise", name)
		}
	}
	if len(names) != 1000 {
		t.Fatalf("%d names for 1000 groups", len(names))
	}
}

func TestPaceCountsFromWhenARequestWasDue(t *testing.T) {
	p := newPace(&options{connections: 1, rate: 1000})
	first := p.wait()
	time.Sleep(5 * time.Millisecond) // the answer was late
	if second := p.wait(); second.Sub(first) != time.Millisecond {
		t.Fatalf("due %v after the first", second.Sub(first))
	}
}

func TestCheckFetchOfMissingOffsetFails(t *testing.T) {
	e := &encoder{}
	e.int32(0)
	e.int32(1)
	e.string("t")
	e.int32(1)
	e.int32(0)
	e.int64(-1)
	e.int32(-1)
	e.string("")
	e.int16(0)
	e.int16(0)
	if err := checkFetch(e.b, 1); err == nil {
		t.Fatal("an answer without a committed offset passed")
	}
	binary.BigEndian.PutUint64(e.b[4+4+3+4+4:], 7)
	if err := checkFetch(e.b, 1); err != nil {
		t.Fatal(err)
	}
	for length := range e.b {
		if err := checkFetch(e.b[:length], 1); err == nil {
			t.Fatalf("%d of %d bytes passed", length, len(e.b))
		}
	}
}

// joinAnswer is the body of a JoinGroup v3 answer to a leader that is told of so many members.
func joinAnswer(member string, generation int32, members int) []byte {
	e := &encoder{}
	e.int32(0)
	e.int16(0)
	e.int32(generation)
	e.string("range")
	e.string(member)
	e.string(member)
	e.int32(int32(members))
	return e.b
}

func TestReadJoinGivesMemberGenerationAndHowManyThereAre(t *testing.T) {
	whole := joinAnswer("m-1", 7, 3)
	if got, err := readJoin(whole); err != nil || got != (joined{"m-1", 7, 3}) {
		t.Fatalf("%v %v", got, err)
	}
	for length := range whole {
		if _, err := readJoin(whole[:length]); err == nil {
			t.Fatalf("%d of %d bytes passed", length, len(whole))
		}
	}
}

func TestRebalanceThatLeavesAMemberOutFails(t *testing.T) {
	for _, members := range []int{1, 2} {
		group := &rebalances{name: "g"}
		for range 2 {
			c := serve(t, func(correlation uint32) []byte { return answerFrame(correlation, joinAnswer("m", 1, members)) })
			group.members = append(group.members, &groupMember{c: c})
		}
		if err := group.step(); (err == nil) != (members == 2) {
			t.Fatalf("%d of 2 members have joined: %v", members, err)
		}
	}
}

func TestMetadataOfAMemberIsAnotherInEachRound(t *testing.T) {
	one, two := joinRequest("g", "m", sessionTimeout, 1), joinRequest("g", "m", sessionTimeout, 2)
	if string(one) == string(two) || len(one) != len(two) {
		t.Fatal("a coordinator would answer from what it has")
	}
}

func TestStoreCommitsInOneGroupAfterTheOther(t *testing.T) {
	s := newStore("g", &options{connections: 2, members: 6, partitions: 1, topic: "t"})
	seen := map[string]bool{}
	for range 6 {
		seen[string(s.request()[:40])] = true
		s.commits[s.at].value = 0
	}
	if len(seen) != 3 {
		t.Fatalf("%d groups, expected 3", len(seen))
	}
}

func TestOnlyMembersThatRebalanceHaveAConnectionEach(t *testing.T) {
	for operation, want := range map[string]int{operationStore: 4, operationHeartbeat: 4, operationRebalance: 100} {
		o := &options{operation: operation, connections: 4, members: 100}
		if got := o.sockets(); got != want {
			t.Errorf("%s: %d sockets, expected %d", operation, got, want)
		}
	}
}

func owns(numbers ...int32) []topicPartitions {
	return []topicPartitions{{id: [16]byte{1}, partitions: numbers}}
}

func TestPartitionOfTwoOwnersIsNamedWithGroupAndMembers(t *testing.T) {
	o := newOwnership("g", 3)
	if err := errors.Join(o.move("a", nil, owns(0, 1)), o.move("b", nil, owns(2)), o.move("a", owns(0, 1), owns(1))); err != nil {
		t.Fatal(err)
	}
	err := o.move("b", owns(2), owns(2, 1))
	want := "group g: partition 1 of topic 01000000-0000-0000-0000-000000000000 is given to member b while member a owns it"
	if err == nil || err.Error() != want {
		t.Fatalf("%v", err)
	}
}

func TestPartitionWithoutOwnerIsNamedWithItsGroup(t *testing.T) {
	o := newOwnership("g", 3)
	if err := errors.Join(o.move("a", nil, owns(0)), o.move("b", nil, owns(2))); err != nil || o.isWhole() {
		t.Fatalf("%v %v", err, o.isWhole())
	}
	want := "group g: partition 1 of topic 01000000-0000-0000-0000-000000000000 has no owner, 2 of 3 partitions have one"
	if err := o.complaint(); err == nil || err.Error() != want {
		t.Fatalf("%v", err)
	}
	if err := o.move("b", owns(2), owns(2, 1)); err != nil || !o.isWhole() || o.complaint() != nil {
		t.Fatalf("%v %v %v", err, o.isWhole(), o.complaint())
	}
	if err := o.move("a", owns(0), nil); err != nil || o.isWhole() {
		t.Fatalf("%v %v: a member has left", err, o.isWhole())
	}
}

func TestAsManyPartitionsAsThereAreOfTwoTopicsAreNotWhole(t *testing.T) {
	o := newOwnership("g", 2)
	other := []topicPartitions{{id: [16]byte{2}, partitions: []int32{1}}}
	if err := errors.Join(o.move("a", nil, owns(0)), o.move("b", nil, other)); err == nil || o.isWhole() {
		t.Fatal("two partitions of two topics passed as one topic of two")
	}
}

// consumerAnswerBody is that of a ConsumerGroupHeartbeat v1 answer, with an assignment unless it is nil.
func consumerAnswerBody(epoch int32, owned []topicPartitions) []byte {
	e := &encoder{}
	e.noTags() // of the header
	e.int32(0)
	e.int16(0)
	e.compactNull()
	e.compactString("m")
	e.int32(epoch)
	e.int32(5000)
	if owned == nil {
		e.b = append(e.b, 0xff)
		e.noTags()
		return e.b
	}
	e.b = append(e.b, 1)
	e.compactLength(len(owned))
	for _, topic := range owned {
		e.b = append(e.b, topic.id[:]...)
		e.compactLength(len(topic.partitions))
		for _, number := range topic.partitions {
			e.int32(number)
		}
		e.noTags()
	}
	e.noTags()
	e.noTags()
	return e.b
}

func TestRebalanceThatGivesAPartitionToTwoMembersFails(t *testing.T) {
	for _, faulty := range []bool{false, true} {
		given := [][]topicPartitions{owns(0), owns(1), nil, owns(0)} // to two members; one leaves, another comes
		if faulty {
			given[3] = owns(1)
		}
		answered := 0
		c := serve(t, func(correlation uint32) []byte {
			answered++
			if answered > len(given) {
				return answerFrame(correlation, consumerAnswerBody(1, nil))
			}
			return answerFrame(correlation, consumerAnswerBody(1, given[answered-1]))
		})
		g := &consumers{options: &options{topic: "t", partitions: 2, setUpTime: 100 * time.Millisecond}, name: "g", owned: newOwnership("g", 2)}
		l := &lane{c: c, members: []*consumer{g.next(), g.next()}}
		g.lanes = []*lane{l}
		if err := errors.Join(g.heartbeat(c, l.members[0]), g.heartbeat(c, l.members[1])); err != nil {
			t.Fatal(err)
		}
		var owners *ownershipError
		if err := g.step(); errors.As(err, &owners) != faulty || (err != nil) != faulty {
			t.Errorf("faulty %v: %v", faulty, err)
		}
	}
}

func TestAssemblyEndsWhenEachPartitionHasAnOwnerAndAllMembersAreAtTheLastEpoch(t *testing.T) {
	answers := []struct {
		epoch int32
		owned []topicPartitions
	}{{1, owns(0, 1)}, {2, owns()}, {1, owns(0)}, {2, nil}, {2, nil}, {2, owns(1)}} // the first and the second in turns
	answered := 0
	c := serve(t, func(correlation uint32) []byte {
		answered++
		if answered > len(answers) {
			return answerFrame(correlation, consumerAnswerBody(2, nil))
		}
		answer := answers[answered-1]
		return answerFrame(correlation, consumerAnswerBody(answer.epoch, answer.owned))
	})
	g := &consumers{options: &options{topic: "t", partitions: 2, setUpTime: time.Second}, name: "g", owned: newOwnership("g", 2)}
	g.lanes = []*lane{{c: c, members: []*consumer{g.next(), g.next()}}}
	if err := g.assemble(); err != nil {
		t.Fatal(err)
	}
	if want := int64(len(answers) + 2); g.requests.Load() != want { // what was given last is reported, too
		t.Fatalf("%d requests, expected %d", g.requests.Load(), want)
	}
}
