//! A weight as Burn's modules have it. By hand: the derived form of an enum would put the name of a variant into the paths of floats.

use burn::module::{Content, Devices, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Device, Int, Tensor};
use firelight_kernels::BlockFormat;

use super::convert::{ORDER, SHAPE, TO_FLOATS};
use super::{Blocks, Numbers, Weight};

/// The container of blocks on the way of a visitor; the name beside it is that of their format.
const BLOCKS: &str = "Enum:Blocks";

/// The format of the blocks that a visitor enters, if they are some.
pub(crate) fn format_in(name: &str, container: &str) -> Option<BlockFormat> {
    if container == BLOCKS { BlockFormat::from_name(name) } else { None }
}

impl Weight {
    /// The same weight with another parameter.
    fn exchanged(
        self,
        floats: impl FnOnce(Param<Tensor<2>>) -> Param<Tensor<2>>,
        bytes: impl FnOnce(Param<Tensor<2, Int>>) -> Param<Tensor<2, Int>>,
    ) -> Self {
        let numbers = match self.numbers {
            Numbers::Floats(param) => Numbers::Floats(floats(param)),
            Numbers::Blocks(blocks) => Numbers::Blocks(Blocks { bytes: bytes(blocks.bytes), format: blocks.format }),
        };
        Self { numbers, layout: self.layout }
    }
}

impl Module for Weight {
    fn collect_devices(&self, devices: Devices) -> Devices {
        match &self.numbers {
            Numbers::Floats(param) => param.collect_devices(devices),
            Numbers::Blocks(blocks) => blocks.bytes.collect_devices(devices),
        }
    }

    fn fork(self, device: &Device) -> Self {
        self.exchanged(|param| Module::fork(param, device), |bytes| Module::fork(bytes, device))
    }

    fn to_device(self, device: &Device) -> Self {
        self.exchanged(|param| Module::to_device(param, device), |bytes| Module::to_device(bytes, device))
    }

    fn train(self) -> Self {
        self.exchanged(Module::train, Module::train)
    }

    fn valid(&self) -> Self {
        self.clone().exchanged(|param| Module::valid(&param), |bytes| Module::valid(&bytes))
    }

    fn materialize(self) -> Self {
        self.exchanged(Module::materialize, Module::materialize)
    }

    fn num_params(&self) -> usize {
        self.dims().iter().product()
    }

    fn visit<Visitor: ModuleVisitor>(&self, visitor: &mut Visitor) {
        SHAPE.set(Some((self.layout.swap(self.dims()), self.layout)));
        match &self.numbers {
            Numbers::Floats(param) => Module::visit(param, visitor),
            Numbers::Blocks(blocks) => {
                visitor.enter_module(blocks.format.name(), BLOCKS);
                Module::visit(&blocks.bytes, visitor);
                visitor.exit_module(blocks.format.name(), BLOCKS);
            }
        }
        SHAPE.set(None);
    }

    fn map<Mapper: ModuleMapper>(self, mapper: &mut Mapper) -> Self {
        let numbers = match self.numbers {
            Numbers::Floats(param) => {
                let param = Module::map(param, mapper);
                match ORDER.take() {
                    Some(order) => Numbers::Blocks(order.blocks(&param, self.layout)),
                    None => Numbers::Floats(param),
                }
            }
            Numbers::Blocks(Blocks { bytes, format }) => {
                mapper.enter_module(format.name(), BLOCKS);
                let bytes = Module::map(bytes, mapper);
                mapper.exit_module(format.name(), BLOCKS);
                let blocks = Blocks { bytes, format };
                match TO_FLOATS.take() {
                    true => Numbers::Floats(blocks.into_floats(self.layout)),
                    false => Numbers::Blocks(blocks),
                }
            }
        };
        Self { numbers, layout: self.layout }
    }
}

impl ModuleDisplayDefault for Weight {
    fn content(&self, content: Content) -> Option<Content> {
        match &self.numbers {
            Numbers::Floats(param) => ModuleDisplayDefault::content(param, content),
            Numbers::Blocks(blocks) => {
                let text = format!("Blocks {{shape: {:?}, format: {}}}", self.dims(), blocks.format.name());
                content.add_formatted(&text).optional()
            }
        }
    }
}

impl ModuleDisplay for Weight {}
