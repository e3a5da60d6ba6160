package main

import (
	"bufio"
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var franzAssignors = map[string]kgo.GroupBalancer{
	"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(),
	"sticky": kgo.StickyBalancer(), "cooperative-sticky": kgo.CooperativeStickyBalancer(),
}

const pollWait = 200 * time.Millisecond

func franzProduce(ctx context.Context, a asked, first, count int) {
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(a.bootstrap, ",")...), kgo.DefaultProduceTopic(a.topic))
	must(err)
	defer client.Close()
	for number := first; number < first+count; number++ {
		client.Produce(ctx, kgo.StringRecord(strconv.Itoa(number)), func(_ *kgo.Record, err error) { must(err) })
	}
	must(client.Flush(ctx))
}

// What a member has, and how long it may not give any of it back: lines of the standard input, "commit OFFSET" and "pause MS".
type franzMember struct {
	mutex  sync.Mutex
	has    map[string]map[int32]bool
	pause  time.Duration
	offset chan int64
}

func (m *franzMember) listen() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		what, number, _ := strings.Cut(lines.Text(), " ")
		if what == "pause" {
			m.mutex.Lock()
			m.pause = milliseconds(number)
			m.mutex.Unlock()
			say("paused", time.Now().UnixMilli())
			continue
		}
		offset, err := strconv.ParseInt(number, 10, 64)
		must(err)
		m.offset <- offset
	}
}

func (m *franzMember) given(_ context.Context, _ *kgo.Client, all map[string][]int32) {
	count := 0
	m.mutex.Lock()
	for topic, partitions := range all {
		count += len(partitions)
		if m.has[topic] == nil {
			m.has[topic] = map[int32]bool{}
		}
		for _, partition := range partitions {
			m.has[topic][partition] = true
		}
	}
	m.mutex.Unlock()
	say("assigned", count)
	sayAll("given", all)
}

func (m *franzMember) gone(what string, all map[string][]int32) {
	m.mutex.Lock()
	for topic, partitions := range all {
		for _, partition := range partitions {
			delete(m.has[topic], partition)
		}
	}
	m.mutex.Unlock()
	sayAll(what, all)
}

// A member that pauses is asked to give something back meanwhile, and commits when it gets to it.
func (m *franzMember) taken(ctx context.Context, client *kgo.Client, all map[string][]int32) {
	m.mutex.Lock()
	pause := m.pause
	m.pause = 0
	m.mutex.Unlock()
	if pause > 0 {
		time.Sleep(pause)
		m.commit(ctx, client, 0)
	}
	m.gone("taken", all)
}

func (m *franzMember) commit(ctx context.Context, client *kgo.Client, offset int64) {
	offsets := map[string]map[int32]kgo.EpochOffset{}
	m.mutex.Lock()
	for topic, partitions := range m.has {
		offsets[topic] = map[int32]kgo.EpochOffset{}
		for partition := range partitions {
			offsets[topic][partition] = kgo.EpochOffset{Epoch: -1, Offset: offset}
		}
	}
	m.mutex.Unlock()
	client.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error) {
		if err != nil {
			say("refused", err)
			return
		}
		for _, topic := range answer.Topics {
			for _, partition := range topic.Partitions {
				if partition.ErrorCode != 0 {
					say("refused", partition.ErrorCode)
					return
				}
			}
		}
		say("committed")
	})
}

func sayAll(what string, all map[string][]int32) {
	now := time.Now().UnixMilli()
	for topic, partitions := range all {
		for _, partition := range partitions {
			say(what, now, topic, partition)
		}
	}
}

func franzConsume(ctx context.Context, a asked) {
	member := &franzMember{has: map[string]map[int32]bool{}, offset: make(chan int64, 1)}
	go member.listen()
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(a.bootstrap, ",")...),
		kgo.ConsumerGroup(a.group),
		kgo.ConsumeTopics(a.topic),
		kgo.RebalanceTimeout(a.pollTimeout),
		kgo.MetadataMaxAge(time.Second),
		kgo.MetadataMinAge(time.Second),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(member.given),
		kgo.OnPartitionsRevoked(member.taken),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, all map[string][]int32) { member.gone("lost", all) }),
	}
	if a.assignor == "consumer" {
		options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	} else {
		options = append(options, kgo.Balancers(franzAssignors[a.assignor]),
			kgo.SessionTimeout(a.sessionTimeout), kgo.HeartbeatInterval(500*time.Millisecond))
	}
	if strings.HasPrefix(a.topic, "^") {
		options = append(options, kgo.ConsumeRegex())
	}
	if a.instance != "" {
		options = append(options, kgo.InstanceID(a.instance))
	}
	client, err := kgo.NewClient(options...)
	must(err)
	defer client.Close()
	for ctx.Err() == nil {
		select {
		case offset := <-member.offset:
			member.commit(ctx, client, offset)
		default:
		}
		some, cancel := context.WithTimeout(ctx, pollWait)
		fetches := client.PollFetches(some)
		cancel()
		fetches.EachRecord(func(record *kgo.Record) { say("record", string(record.Value)) })
		if fetches.NumRecords() > 0 { // else it takes back what it was asked to commit
			_ = client.CommitUncommittedOffsets(ctx) // one that is too late is refused, and the group has rebalanced
		}
	}
}
