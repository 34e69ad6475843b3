--- Load latency: offers a constant rate of test frames, takes latency samples from it, and reports frame totals.
--
-- Hardware timestamps and the NIC's rate limit are used where the device has them. Elsewhere one task does it all in
-- software: it sends at the right times, takes back what returns, and every so many frames sends one that carries its
-- send time and a sequence number: the latency samples. Times are seconds unless a name says otherwise.
local mg         = require "moongen"
local memory     = require "memory"
local device     = require "device"
local timestamps = require "timestamping"
local stats      = require "stats"
local histogram  = require "histogram"
local log        = require "log"
local load       = require "load-task"
local options    = require "load-options"

local ETHERTYPE_LOAD, ETHERTYPE_SAMPLE = 0x1234, 0x88f7

function configure(parser)
	return options.parse(parser)
end

-- A driver that can timestamp replaces the prototype's functions, which only end the program.
local function hasHardwareTimestamps(dev)
	local prototype = device.__devicePrototype
	return dev.enableTxTimestamps ~= prototype.enableTxTimestamps
		and dev.enableRxTimestamps ~= prototype.enableRxTimestamps
end

-- Have the NIC limit every load queue. False when it cannot, or when whole Mbit/s, to which drivers round, are more than
-- 0.1 % off. A limit that was not set shows only as a warning, so this listens to the warnings.
local function limitInHardware(dev, args)
	local mbit = args.rate * 1e3 * (args.size + 4) * 8 / 1e6 / args.threads
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

local function startTasks(dev, args, hardwareTimestamps, hardwareRate)
	local tasks = {}
	if hardwareTimestamps then
		local sampleQueue = args.threads
		tasks[1] = mg.startSharedTask("sampleTask", dev:getTxQueue(sampleQueue), dev:getRxQueue(1), args)
	else
		tasks[1] = mg.startTask("softwareTask", dev, args)
	end
	for queue = hardwareTimestamps and 0 or 1, args.threads - 1 do
		tasks[#tasks + 1] = mg.startTask("loadTask", dev:getTxQueue(queue), args, hardwareRate)
	end
	return tasks
end

function master(args)
	local file = openCsv(args.csv)
	local dev = device.config{
		port = args.dev, rxQueues = 2, txQueues = args.threads + 1,
		etherTypes = { ETHERTYPE_LOAD, ETHERTYPE_SAMPLE }
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
	local tasks = startTasks(dev, args, hardwareTimestamps, hardwareRate)
	-- in software mode the task itself drains, and knows when all is back
	watch(tasks, rx, tx, file, hardwareTimestamps and args.drain or 0)
	finalize(rx, "RX", file)
	finalize(tx, "TX", file)
	local samples = tasks[1]:wait()
	if not samples then
		error("the task that takes the latency samples failed", 0)
	elseif samples == 0 then
		-- a finding, not a failure of the program: an error would print a traceback
		log:warn("no latency samples: no timestamped frame came back")
		os.exit(1)
	end
end

local function report(hist, args)
	hist:print()
	hist:save(args.file)
end

--- Task: offer one thread's share of the load, nothing else. Returns the number of frames sent.
function loadTask(queue, args, hardwareRate)
	local rate = hardwareRate and math.huge or args.rate * 1e3 / args.threads
	return load.send(queue, args, rate)
end

--- Task: take latency samples with hardware timestamps, one at a time. Returns their number.
function sampleTask(txQueue, rxQueue, args)
	local stamper = timestamps:newTimestamper(txQueue, rxQueue)
	local hist, samples = histogram:new(), 0
	local stopAt = mg.getTime() + args.time
	local function address(buf)
		buf:getEthernetPacket().eth.dst:setString(args.mac)
	end
	while mg.running() and mg.getTime() < stopAt do
		local latency = stamper:measureLatency(args.size, address, args.max_wait * 1e3)
		samples = samples + (latency and 1 or 0)
		hist:update(latency)
	end
	if samples > 0 then
		report(hist, args)
	end
	return samples
end

--- Task: offer the load, receive and take latency samples in software. Returns the number of samples.
function softwareTask(dev, args)
	local run = load.newRun(dev, args)
	run:offer()
	run:drain()
	run:summarize()
	local hist = histogram:new()
	local samples = run:fill(hist)
	if samples > 0 then
		report(hist, args)
	end
	return samples
end
