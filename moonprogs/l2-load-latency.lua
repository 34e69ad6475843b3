--- Load latency: offers a constant rate of test frames, takes latency samples from it, and reports frame totals.
--
-- Hardware timestamps and the NIC's rate limit are used where the device has them. Elsewhere one task does it all in
-- software: it sends at the right times, takes back what returns, and every so many frames sends one that carries its
-- send time and a sequence number: the latency samples. Other load tasks only send. Times are seconds unless a name says
-- otherwise. Guests are the machines that the load goes to, one for each address.
local mg         = require "moongen"
local device     = require "device"
local timestamps = require "timestamping"
local stats      = require "stats"
local log        = require "log"
local pipe       = require "pipe"
local frame      = require "load-frame"
local load       = require "load-task"
local options    = require "load-options"
local report     = require "load-report"
local sequence   = require "load-sequence"
local sizes      = require "load-sizes"

-- Load tasks begin together, this much later, and so much more for each size in their decks: to start and fill them takes
-- some milliseconds, more for one than for another, and until all send the rate would be another than the offered one.
local START_UP, PER_SIZE = 0.3, 50e-9

function configure(parser)
	return options.parse(parser)
end

-- A driver that can timestamp replaces the prototype's functions, which only end the program.
local function hasHardwareTimestamps(dev)
	local prototype = device.__devicePrototype
	return dev.enableTxTimestamps ~= prototype.enableTxTimestamps
		and dev.enableRxTimestamps ~= prototype.enableRxTimestamps
end

-- Have the NIC limit every load queue, to the rate of frames of the mean size. False when it cannot, or when whole Mbit/s, to
-- which drivers round, are more than 0.1 % off. A limit that was not set shows only as a warning, so this listens to the
-- warnings.
local function limitInHardware(dev, args)
	local mbit = args.rate * 1e3 * (sizes.meanOfLoad(args) + 4) * 8 / 1e6 / args.threads
	if mbit < 1 or (mbit - math.floor(mbit)) / mbit > 0.001 then
		return false
	end
	local warn, warned = log.warn, false
	log.warn = function() warned = true end
	local called = true
	for queue = 0, args.threads - 1 do
		called = called and pcall(function() dev:getTxQueue(queue):setRate(mbit) end)
	end
	log.warn = warn
	return called and not warned
end

local function announce(hardwareTimestamps, hardwareRate)
	local names = { [true] = "hardware", [false] = "software" }
	log:info("Latency by %s timestamps, load paced by %s", names[hardwareTimestamps], names[hardwareRate])
end

-- One CSV row, as MoonGen's own CSV statistics. One reader of the device serves the output and the file, because some
-- drivers' counters are cleared by reading.
local function writeRow(file, counter, direction, mpps, mbit, wireMbit)
	file:write(("%d,%s,%s,%s,%s,%s,%s,%s\n"):format(os.time(), counter.name, direction, mpps, mbit, wireMbit,
		counter.total, counter.totalBytes))
	file:flush()
end

local function update(counter, direction, file)
	local before = #counter.mpps
	counter:update()
	local n = #counter.mpps
	if file and n > before then
		writeRow(file, counter, direction, counter.mpps[n], counter.mbit[n], counter.wireMbit[n])
	end
end

local function finalize(counter, direction, file)
	counter:finalize(0)
	if file then
		writeRow(file, counter, direction, counter.mpps.avg, counter.mbit.avg, counter.wireMbit.avg)
	end
end

local function anyRunning(tasks)
	for _, task in ipairs(tasks) do
		if task:isRunning() then
			return true
		end
	end
	return false
end

-- Print statistics each second until the tasks have ended, and afterwards until `drain` is over.
local function watch(tasks, rx, tx, file, drain)
	local ended
	while not ended or mg.getTime() < ended + drain do
		update(rx, "RX", file)
		update(tx, "TX", file)
		mg.sleepMillisIdle(10)
		ended = ended or not anyRunning(tasks) and mg.getTime() or nil
	end
end

local function openCsv(path)
	if not path then
		return nil
	end
	local file = assert(io.open(path, "w"))
	file:write("Time,Device,Direction,PacketRate,Mbit,MbitWithFraming,TotalPackets,TotalBytes\n")
	return file
end

-- Start the tasks that send load, from the one with number `first` on; adds them to the list.
local function startLoadTasks(tasks, first, dev, args, hardwareRate, pipes)
	for task = first, args.threads - 1 do
		tasks[#tasks + 1] = mg.startTask("loadTask", dev, args, task, hardwareRate, pipes[task - first + 1])
	end
end

local function newPipes(n)
	local pipes = {}
	for i = 1, n do
		pipes[i] = pipe:newSlowPipe()
	end
	return pipes
end

-- One task takes the samples, one at a time, because a NIC has one timestamp register. Whose the frames are that come back
-- must only be told with several guests, by one more task; the device counts all.
local function startHardware(dev, args, hardwareRate)
	local counts = #args.addresses > 1
	local pipes = newPipes(counts and args.threads or 0)
	local tasks = { mg.startSharedTask("sampleTask", dev, args) }
	if counts then
		tasks[2] = mg.startTask("countTask", dev, args, unpack(pipes))
	end
	startLoadTasks(tasks, 0, dev, args, hardwareRate, pipes)
	return tasks
end

local function startSoftware(dev, args)
	if args.threads > 1 then
		args.start = mg.getTime() + START_UP + PER_SIZE * sizes.inDecks(args)
	end
	local pipes = newPipes(args.threads - 1)
	local tasks = { mg.startTask("softwareTask", dev, args, unpack(pipes)) }
	startLoadTasks(tasks, 1, dev, args, false, pipes)
	return tasks
end

-- What the tasks returned, each a table; raises when one failed.
local function resultsOf(tasks)
	local results = {}
	for i, task in ipairs(tasks) do
		results[i] = task:wait() or error(i == 1 and "the task that takes the latency samples failed" or "a load task failed", 0)
	end
	return results
end

-- Print the guests' lines. What the device received and no task took (its ring was full, or it came too late) is in the
-- totals, but nobody knows whose it is.
local function reportGuests(args, results, rxTotal)
	local taken = 0
	for _, result in ipairs(results) do
		taken = taken + (result.taken or 0)
	end
	if taken < rxTotal then
		log:warn("only %d of the %d frames that the device received were counted by guest: the guests lost fewer than they seem to",
			taken, rxTotal)
	end
	report.guests(args, results, results[1].samples)
end

function master(args)
	local file = openCsv(args.csv)
	args.tag = math.floor(os.time() * 1e3 + mg.getTime() * 1e6) % 2 ^ 32
	local dev = device.config{
		port = args.dev, rxQueues = 2, txQueues = args.threads + 1, etherTypes = { frame.LOAD, frame.SAMPLE }
	}
	if device.waitForLinks() == 0 then
		error(("the link of port %d is down"):format(args.dev), 0)
	end
	local hardwareTimestamps = hasHardwareTimestamps(dev)
	local hardwareRate = hardwareTimestamps and limitInHardware(dev, args)
	announce(hardwareTimestamps, hardwareRate)
	local rx, tx = stats:newDevRxCounter(dev, "plain"), stats:newDevTxCounter(dev, "plain")
	update(rx, "RX", file)
	update(tx, "TX", file)
	local tasks = hardwareTimestamps and startHardware(dev, args, hardwareRate) or startSoftware(dev, args)
	-- in software mode the task itself drains, and knows when all is back
	watch(tasks, rx, tx, file, hardwareTimestamps and args.drain or 0)
	finalize(rx, "RX", file)
	finalize(tx, "TX", file)
	local results = resultsOf(tasks)
	if #args.addresses > 1 then
		reportGuests(args, results, rx.total)
	end
	if results[1].total == 0 then
		-- a finding, not a failure of the program: an error would print a traceback
		log:warn("no latency samples: no timestamped frame came back")
		os.exit(1)
	end
end

--- Task: offer one thread's share of the load, nothing else. Returns what was sent by guest.
function loadTask(dev, args, task, hardwareRate, pipe)
	return { sent = load.send(dev, args, task, hardwareRate, pipe) }
end

--- Task: take latency samples with hardware timestamps, one at a time, of the guests in turn. Returns their number, by
-- guest too, and what was sent and came back of these frames.
function sampleTask(dev, args)
	local stamper = timestamps:newTimestamper(dev:getTxQueue(args.threads), dev:getRxQueue(1))
	local histograms, drawn = report.newHistograms(args), sequence.new(args, args.threads)
	local received, attempts = sequence.newTotals(args), 0
	local guest, size
	local stopAt = mg.getTime() + args.time
	local function address(buf)
		drawn:address(buf, guest)
	end
	while mg.running() and mg.getTime() < stopAt do
		guest, size = drawn:draw(drawn.samples)
		local latency = stamper:measureLatency(size, address, args.max_wait * 1e3)
		attempts = attempts + 1
		histograms:update(guest + 1, latency)
		if latency then
			received:add(guest, size)
		end
	end
	histograms:finish()
	return {
		total = histograms.total, samples = histograms.samples, sent = drawn.totals:lists(), received = received:lists(),
		taken = attempts -- also a frame that came too late to be a sample was received
	}
end

--- Task: receive the load that other tasks send, and tell whose it is. Returns what came back by guest.
function countTask(dev, args, ...)
	local received, taken = load.count(dev, args, { ... })
	return { received = received, taken = taken }
end

--- Task: offer the load, receive and take latency samples in software. Returns the number of samples, by guest too, and
-- what was sent and came back by guest.
function softwareTask(dev, args, ...)
	local run, histograms = load.newRun(dev, args, { ... }), report.newHistograms(args)
	run:run()
	run.samples:fill(histograms)
	histograms:finish()
	local sent, received, taken = run:totals()
	return { total = histograms.total, samples = histograms.samples, sent = sent, received = received, taken = taken }
end
