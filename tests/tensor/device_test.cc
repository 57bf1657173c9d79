#include "lockstep/device.h"

#include <gmock/gmock.h>

#include <sstream>
#include <unordered_set>
#include <vector>

#include "lockstep/device_table.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string refusal(std::string_view text) {
  try {
    const Device device(text);
    return "accepted as " + device.str();
  } catch (const InvalidUsage& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
}

TEST(Device, AllSpellingsAreOneDevice) {
  const char* canonical = "/job:localhost/replica:0/task:0/device:CPU:0";
  for (const char* text : {"", "CPU:0", "cpu:0", "/device:CPU:0", "/cpu:0", "/CPU:0",
                           "/job:localhost", "/task:0/cpu:0", canonical}) {
    EXPECT_EQ(Device(text).str(), canonical) << text;
    EXPECT_EQ(Device(text), Device()) << text;
  }
}

TEST(Device, HasParts) {
  const Device device("/job:worker/replica:2/task:13/device:GPU:7");
  EXPECT_EQ(device.job(), "worker");
  EXPECT_EQ(device.replica(), 2);
  EXPECT_EQ(device.task(), 13);
  EXPECT_EQ(device.type(), "GPU");
  EXPECT_EQ(device.index(), 7);
  EXPECT_EQ(device.short_name(), "GPU:7");
  EXPECT_EQ(Device(device.str()), device);
  EXPECT_EQ(Device("/device:TPU:3").short_name(), "TPU:3");
}

TEST(Device, DefaultsFillGapsFirst) {
  EXPECT_EQ(Device::canonicalize("/job:worker/task:1", "/gpu:0").str(),
            "/job:worker/replica:0/task:1/device:GPU:0");
  EXPECT_EQ(Device::canonicalize("/cpu:0", "/job:worker").str(),
            "/job:worker/replica:0/task:0/device:CPU:0");
  EXPECT_EQ(Device::canonicalize("", "/job:ps/replica:1/task:2/device:GPU:3").str(),
            "/job:ps/replica:1/task:2/device:GPU:3");
  // An index belongs to its type: CPU:0 does not become CPU:3.
  EXPECT_EQ(Device::canonicalize("CPU:0", "GPU:3").short_name(), "CPU:0");
}

TEST(Device, LongFormIsUpperCase) {
  EXPECT_THAT(refusal("/device:cpu:0"), HasSubstr("must be in upper case, not \"cpu\""));
  EXPECT_THAT(refusal("/device:cpu:0"), HasSubstr("Expected \"CPU:0\""));
}

TEST(Device, RefusesEverythingElse) {
  EXPECT_THAT(refusal("/"), HasSubstr("is empty"));
  EXPECT_THAT(refusal("CPU"), HasSubstr("\"CPU\" has no ':'"));
  EXPECT_THAT(refusal("/device:CPU"), HasSubstr("wants a type and an index"));
  EXPECT_THAT(refusal("CPU:"), HasSubstr("must be a number, not \"\""));
  EXPECT_THAT(refusal("CPU:-1"), HasSubstr("must be a number, not \"-1\""));
  EXPECT_THAT(refusal("CPU:+1"), HasSubstr("must be a number"));
  EXPECT_THAT(refusal("CPU:1x"), HasSubstr("must be a number, not \"1x\""));
  EXPECT_THAT(refusal("CPU:99999999999"), HasSubstr("must be a number"));
  EXPECT_THAT(refusal("/gpu:*"), HasSubstr("must be a number"));
  EXPECT_THAT(refusal("TPU:0"), HasSubstr("is not job, replica, task"));
  EXPECT_THAT(refusal("/Job:a"), HasSubstr("is not job, replica, task"));
  EXPECT_THAT(refusal("CPU:0/task:1"), HasSubstr("must be a number"));
  EXPECT_THAT(refusal("/job:a//task:1"), HasSubstr("is empty"));
  EXPECT_THAT(refusal("/job:/task:1"), HasSubstr("the job must be letters"));
  EXPECT_THAT(refusal("/job:a b"), HasSubstr("the job must be letters"));
  EXPECT_THAT(refusal("/cpu:0/device:GPU:0"), HasSubstr("the device is given twice"));
  EXPECT_THAT(refusal("/task:0/task:0"), HasSubstr("the task is given twice"));
  EXPECT_THAT(refusal("/device::0"), HasSubstr("upper case"));
  EXPECT_THROW(Device::canonicalize("", "nonsense"), InvalidUsage);
}

TEST(Device, ListsAreWrittenAsStrings) {
  const std::vector<Device> devices = {"CPU:0", "CPU:1"};
  EXPECT_EQ(devices.size(), 2U);
  EXPECT_EQ(devices[1], "/cpu:1");
  const std::string text = "GPU:0";
  const std::vector<Device> mixed = {text, std::string_view("CPU:2")};
  EXPECT_THAT(mixed, ElementsAre(Device("GPU:0"), Device("CPU:2")));
}

TEST(Device, OrdersAndHashes) {
  const std::vector<Device> ascending = {
      "CPU:0", "CPU:2", "CPU:10", "GPU:0", "/task:1/cpu:0", "/replica:1/cpu:0", "/job:z/cpu:0"};
  std::unordered_set<Device> set;
  for (std::size_t i = 0; i + 1 < ascending.size(); ++i) {
    EXPECT_LT(ascending[i], ascending[i + 1]);
    set.insert(ascending[i]);
    set.insert(Device(ascending[i].str()));
  }
  EXPECT_EQ(set.size(), ascending.size() - 1);
}

TEST(Device, Prints) {
  std::ostringstream out;
  out << Device("GPU:1");
  EXPECT_EQ(out.str(), "/job:localhost/replica:0/task:0/device:GPU:1");
}

TEST(DeviceTable, MachineHasManyLogicalCpus) {
  const DeviceTable table = DeviceTable::machine();
  EXPECT_TRUE(table.contains("CPU:0"));
  EXPECT_TRUE(table.contains("CPU:63"));
  EXPECT_FALSE(table.contains("CPU:64"));
  EXPECT_TRUE(table.contains("/job:worker/task:5/cpu:3"));
  EXPECT_FALSE(table.contains("/device:TPU:0"));
  EXPECT_EQ(table.torch_device("CPU:7"), at::Device(at::kCPU));
  if (table.gpus == 0) {
    EXPECT_THAT(table.default_devices(), ElementsAre(Device("CPU:0")));
  }
}

TEST(DeviceTable, NamesWhatIsMissingAndWhatIsThere) {
  const DeviceTable table = {.cpus = 2};
  EXPECT_NO_THROW(table.check({"CPU:0", "CPU:1"}));
  try {
    table.check({"CPU:0", "GPU:0"});
    FAIL() << "GPU:0 was accepted";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "device /job:localhost/replica:0/task:0/device:GPU:0 does not exist; here are: "
                 "CPU:0 ... CPU:1, no GPU");
  }
  EXPECT_THROW((void)table.torch_device("CPU:2"), ConfigError);
}

TEST(DeviceTable, EmulatesGpus) {
  const DeviceTable table = {.cpus = 1, .gpus = 2, .links = {{1}, {0}}};
  EXPECT_TRUE(table.contains("GPU:1"));
  EXPECT_EQ(table.torch_device("GPU:1"), at::Device(at::kCPU));
  EXPECT_THAT(table.default_devices(), ElementsAre(Device("GPU:0"), Device("GPU:1")));
  EXPECT_EQ(table.to_string(), "CPU:0, GPU:0 ... GPU:1");
}

}  // namespace
}  // namespace lockstep
