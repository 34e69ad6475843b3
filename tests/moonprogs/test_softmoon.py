"""softmoon: command line, configuration, tasks, and calls that it lacks."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from moonwire import DUT_MAC, MOONGEN, MOONPROGS, Wire, wait_until


def moongen(*arguments: object, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(MOONGEN), *map(str, arguments)], capture_output=True, text=True, timeout=20, **options, check=False
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "missing argument 'dev'"),
        (["0"], "missing argument 'mac'"),
        (["zero", DUT_MAC], "dev must be a whole number"),
        (["0", "nowhere"], "mac must look like"),
        (["0", DUT_MAC, "-r", "fast"], "rate must be a number"),
        (["0", DUT_MAC, "-r", "-1"], "rate must be a number"),
        (["0", DUT_MAC, "-s", "59"], "size must be a whole number from 60"),
        (["0", DUT_MAC, "-T"], "option '-T' requires an argument"),
        (["0", DUT_MAC, "--nonsense"], "unknown option '--nonsense'"),
        (["0", DUT_MAC, "more"], "too many arguments"),
    ],
)
def test_wrong_arguments_give_usage_and_error_on_stderr_and_exit_1(arguments: list[str], complaint: str) -> None:
    result = moongen(MOONPROGS / "l2-load-latency.lua", *arguments)

    assert result.returncode == 1
    assert result.stderr.startswith("Usage: ")
    assert f"Error: {complaint}" in result.stderr
    assert result.stdout == ""


def test_missing_interface_is_told_in_one_line(tmp_path: Path) -> None:
    config = tmp_path / "dpdk-conf.lua"
    config.write_text('DPDKConfig { cli = { "--vdev=net_af_packet0,iface=nosuch0" } }')

    result = moongen(MOONPROGS / "reflector.lua", f"--dpdk-config={config}", 0)

    assert result.returncode == 1
    assert result.stderr == "softmoon: interface 'nosuch0' of port 0 does not exist in this network namespace\n"


def test_missing_program_and_missing_configuration_are_told_in_one_line(tmp_path: Path) -> None:
    for arguments in ([tmp_path / "nosuch.lua"], [MOONPROGS / "reflector.lua", "--dpdk-config=/nosuch", 0]):
        result = moongen(*arguments)
        assert result.returncode == 1
        assert len(result.stderr.splitlines()) == 1 and "nosuch" in result.stderr


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("require('device').config{ port = 0 }:l2Filter(1)", "softmoon: device:l2Filter is not supported"),
        ("require('moongen').startTaskOnCore(1)", "softmoon: mg.startTaskOnCore is not supported"),
        (
            "require('device').config{ port = 0 }:getTxQueue(0):sendWithDelay()",
            "softmoon: txQueue:sendWithDelay is not supported",
        ),
        ("require('filter')", "softmoon: module 'filter' is not supported"),
        (
            "require('timestamping'):newTimestamper(require('device').config{ port = 0 }:getTxQueue(0))",
            "tx timestamping is not supported",
        ),
    ],
)
def test_call_that_softmoon_lacks_fails_by_name(wire: Wire, program, call: str, name: str) -> None:
    result = wire.loadgen.moongen(program(f"function master() {call} end\n"))

    assert result.returncode == 1
    assert "[FATAL] Lua error in task master" in result.stdout
    assert name in result.stdout


def test_tasks_are_fresh_machines_that_get_data_and_queues_and_return_values(wire: Wire, program) -> None:
    path = program("""
local mg, device = require "moongen", require "device"
secret = "unchanged"
function master()
    secret = "changed in the master"
    local dev = device.config{ port = 0, txQueues = 2 }
    local task = mg.startTask("work", 1.5, "two\\n", { 3, deep = { true } }, dev:getTxQueue(1), dev)
    print("result", task:wait())
    mg.startSharedTask("fail")
    mg.waitForTasks()
    print("still here")
end
function work(a, b, c, queue, dev)
    return a, b, c[1], c.deep[1], tostring(queue), dev:getMacString(), secret
end
function fail() error("on purpose") end
""")

    result = wire.loadgen.moongen(path)

    assert ("result\t1.5\ttwo\n\t3\ttrue\t[TxQueue: id=0, qid=1]\t52:54:00:AA:00:01\tunchanged\n") in result.stdout
    assert "[FATAL] Lua error in task fail" in result.stdout
    assert result.stdout.endswith("still here\n")
    assert result.returncode == 0


def test_large_tables_go_to_a_task_and_come_back(program, tmp_path: Path) -> None:
    path = program("""
local mg = require "moongen"
function master()
    local list = {}
    for i = 1, 30000 do list[i] = { i, "text " .. i } end
    local back = mg.startTask("turn", list):wait()
    print("came back", #back, back[1], back[30000])
end
function turn(list)
    local back = {}
    for i, item in ipairs(list) do back[#list + 1 - i] = item[1] + #item[2] end
    return back
end
""")

    result = moongen(path)

    assert result.stdout == "came back\t30000\t30010\t7\n", result.stdout + result.stderr


def test_pipes_carry_messages_from_one_task_to_another_in_order(program, tmp_path: Path) -> None:
    path = program("""
local mg, pipe = require "moongen", require "pipe"
function master()
    local there, back = pipe:newSlowPipe(), pipe:newSlowPipe()
    local task = mg.startTask("answer", there, back)
    there:send(1, nil, "x")
    there:send({ deep = { true } })
    print("first", back:recv())
    print("second", back:recv())
    print("nothing", back:tryRecv(0))
    print("nothing", back:tryRecv(1000))
    task:wait()
end
function answer(there, back)
    local a, b, c = there:recv()
    back:send(c, b, a)
    back:send(there:recv().deep[1])
end
""")

    result = moongen(path)

    assert result.stdout == "first\tx\tnil\t1\nsecond\ttrue\nnothing\nnothing\n", result.stdout + result.stderr


def test_statistics_task_prints_totals_after_the_stop(wire: Wire, program) -> None:
    path = program("""
local mg, device, memory, stats = require "moongen", require "device", require "memory", require "stats"
function master()
    local dev = device.config{ port = 0 }
    stats.startStatsTask{ dev }
    mg.setRuntime(0.3)
    local pool = memory.createMemPool(function(buf) buf:getEthernetPacket():fill{ ethSrc = dev } end)
    local bufs, sent = pool:bufArray(7), 0
    bufs:alloc(100)
    print("sent", dev:getTxQueue(0):send(bufs))
    mg.waitForTasks()
end
""")

    output = wire.loadgen.moongen(path).stdout

    assert "sent\t7\n" in output
    assert "total 7 packets with 728 bytes (incl. CRC)" in output


def test_frames_that_find_the_receive_ring_full_are_reported(wire: Wire, program, tmp_path: Path) -> None:
    sleeper = program("""
local mg, device, memory = require "moongen", require "device", require "memory"
function master()
    local dev = device.config{ port = 0 }
    print("listening")
    local task = mg.startTask("sleep", dev:getRxQueue(0))
    task:wait()
    print("received", dev:getRxStats())
end
function sleep(queue)
    local bufs = memory.bufArray(63)
    while mg.running() do mg.sleepMillisIdle(10) end
    local n = queue:tryRecv(bufs, 0)
    print("taken", n)
    bufs:free(n)
end
""")
    log = tmp_path / "sleeper.log"
    process = wire.dut.start(sleeper, log=log)
    wait_until(lambda: "listening" in log.read_text(), "receiver listening")
    wire.loadgen.moongen("l2-load-latency.lua", 0, DUT_MAC, "-r", 20, "-T", 0.5, "--drain", 0)
    sent = wire.loadgen.counter("tx_packets")

    process.terminate()

    assert process.wait(5) == 0
    text = log.read_text()
    # the ring has 4096 slots
    assert f"{sent - 4096} frames came back but found the receive ring full" in text
    assert f"received\t{sent - 4096 + 63}\t" in text


def test_send_on_an_interface_that_is_down_fails_with_the_reason(wire: Wire, program) -> None:
    wire.loadgen.ip("link", "set", "veth0", "down")
    path = program("""
local device, memory = require "device", require "memory"
function master()
    local dev = device.config{ port = 0 }
    local bufs = memory.createMemPool():bufArray(1)
    bufs:alloc(60)
    dev:getTxQueue(0):send(bufs)
end
""")

    result = wire.loadgen.moongen(path)

    assert result.returncode == 1
    assert "softmoon: cannot send: Network is down" in result.stdout


def test_works_from_any_directory_and_through_a_symlink(tmp_path: Path) -> None:
    link = tmp_path / "MoonGen"
    link.symlink_to(MOONGEN)
    (tmp_path / "hello.lua").write_text("function master(...) print('hello', ...) end\n")

    result = subprocess.run(
        ["./MoonGen", "hello.lua", "1", "x"], cwd=tmp_path, capture_output=True, text=True, timeout=20, check=False
    )

    assert result.stdout == "hello\t1\tx\n"


def test_nothing_outlives_a_killed_run(wire: Wire, program, tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    path = program("""
local mg = require "moongen"
local ffi = require "ffi"
function master() mg.startTask("work") mg.waitForTasks() end
function work() print("pid", ffi.C.getpid()) mg.sleepMillisIdle(60000) end
""")
    process = wire.loadgen.start(path, log=log)
    wait_until(lambda: log.read_text().endswith("\n"), "task started")
    worker = int(log.read_text().split()[1])

    process.kill()
    process.wait(5)

    wait_until(lambda: not Path(f"/proc/{worker}").exists(), "end of the task")
